//! What steering brings to etcd, over an emulated network.

use std::process::Command;

/// `mandate lab steer`, short: on an emulated network, from the worst place to the best.
#[test]
fn over_three_data_centres_the_best_by_arithmetic_leads() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mandate-lab"));
    command.args(["steer", "--only", "all at D1", "--rate", "30", "--length", "500ms"]);
    let output = command.args(["-o", "json"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    assert!(output.status.success(), "{report:#}");
    let setting = &report["settings"][0];
    assert!(["p4", "p5"].contains(&setting["steered"]["leader"].as_str().unwrap()), "{report:#}");
    assert!(setting["share_of_worst"].as_f64().unwrap() < 0.6, "{report:#}");
}
