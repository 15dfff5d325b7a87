//! A member of a group that elects among itself: `mandate init`, then in a terminal for each member
//!
//! `cargo run --example peer -- group/p1.toml new` (`new` only the first time)

use mandate::{Error, Start, Term};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut words = std::env::args().skip(1);
    let file = words.next().unwrap_or_else(|| "group/p1.toml".into());
    let start = if words.next().is_some() { Start::New } else { Start::Stored };
    let member = mandate::peer::from_file(file)?.with_start(start).start().await?;
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
