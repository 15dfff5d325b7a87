//! A process of the replicated key-value service, and a client of it.

use clap::Parser;
use mandate_kv::program::{self, KvCommand};

/// A replicated key-value service, led by whom the scores elect.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: KvCommand,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("MANDATE_LOG"))
        .with_writer(std::io::stderr)
        .init();
    program::run(args.command)
}
