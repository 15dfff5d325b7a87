//! Members on PostgreSQL: `mandate sql init --url postgres://...` once, then in two terminals
//!
//! `cargo run --example postgres --features postgres -- postgres://app@db/orders`

use mandate::Error;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "postgres://app@db/orders".into());
    let member = mandate::sql::join(&url, "billing").await?;
    // Given back at the end of the work, and won again later: by this process or another.
    let turns = member.lead(async |mandate| {
        println!("leading in term {}", mandate.term());
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    });
    tokio::select! {
        ended = turns => ended,
        _ = tokio::signal::ctrl_c() => {
            member.shutdown().await;
            Ok(())
        }
    }
}
