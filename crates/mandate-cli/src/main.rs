//! The `mandate` program; the library is all of it.

fn main() -> std::process::ExitCode {
    mandate_cli::main()
}
