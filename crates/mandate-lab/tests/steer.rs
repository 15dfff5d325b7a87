//! What steering brings to etcd, over an emulated network.

use std::process::Command;

/// `mandate lab steer`, short: on an emulated network, from the worst place to the best.
#[test]
fn over_three_data_centres_the_best_by_arithmetic_leads() {
    let mut seen = Vec::new();
    // On a busy host measured round trips, and etcd's own elections, may be in the way of one run, but not of each.
    for _ in 0..5 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mandate-lab"));
        command.args(["steer", "--only", "all at D1", "--rate", "30", "--length", "500ms"]);
        let output = command.args(["-o", "json"]).output().unwrap();
        let Ok(report) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!complaint.contains("panicked"), "{complaint}");
            seen.push(complaint);
            continue;
        };
        let setting = &report["settings"][0];
        let is_best = ["p4", "p5"].contains(&setting["steered"]["leader"].as_str().unwrap());
        let share = setting["share_of_worst"].as_f64().unwrap();
        if output.status.success() && is_best && share < 0.6 {
            return;
        }
        seen.push(format!("{report:#}"));
    }
    panic!("{}", seen.join("\n"));
}
