use mandate_sim::installation::{Mutant, Options, run};
use mandate_sim::mutant::Bug;
use mandate_sim::runner::run_seeds;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let mutant = a.get(4).and_then(|n| Mutant::named(n));
    let options = Options { mutant, changes: true };
    match a[1].as_str() {
        "one" => {
            let seed = a[2].parse().unwrap();
            let mut out = std::io::stdout().lock();
            let o = run(seed, &options, Some(&mut out));
            println!("{:?}", o.verdict);
        }
        _ => {
            let first: u64 = a[2].parse().unwrap();
            let count: u64 = a[3].parse().unwrap();
            let s = run_seeds(
                first..first + count,
                2,
                a.get(5).map_or(12, |n| n.parse().unwrap()),
                |seed| run(seed, &options, None),
                |_| {},
            );
            for f in &s.failures {
                println!("{f:?}");
            }
            println!("reigns {} failures {}", s.reigns, s.failures.len());
        }
    }
}
