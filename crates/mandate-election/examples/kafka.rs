//! A thousand roles, shared by as many processes as are started: in two terminals
//!
//! `cargo run --example kafka --features kafka -- kafka1:9092`

use mandate::Error;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let brokers = std::env::args().nth(1).unwrap_or_else(|| "localhost:9092".into());
    let member = mandate::kafka::join(&brokers, "billing").roles(1000).start().await?;
    let roles = member.roles().expect("groups on Kafka have roles");
    let customer = roles.named("customer 4711").expect("a name is some role's");
    loop {
        if let Some(term) = roles.term(customer) {
            println!("leading in term {term}, and {} roles in all", roles.owned().len());
        }
        if let Some(reason) = member.ended() {
            return Err(Error::Ended(reason));
        }
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
}
