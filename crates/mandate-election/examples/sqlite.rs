//! Processes of one host that share a file: in two terminals
//!
//! `cargo run --example sqlite --features sqlite -- sqlite:./mandate.db`

use mandate::{Error, Term};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "sqlite:./mandate.db".into());
    let member = mandate::sql::join(&file, "billing").await?;
    member
        .lead(async |mandate| {
            while mandate.check() {
                work(mandate.term()).await;
            }
        })
        .await
}

/// Whatever only a leader may do. Send the term along, and have the other side refuse lower ones.
async fn work(term: Term) {
    println!("leading in term {term}");
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
}
