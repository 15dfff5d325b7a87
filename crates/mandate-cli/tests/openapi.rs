//! The description of the daemon's interface, before a validator that is not ours: generators of clients refuse what it
//! refuses. `cargo xtask test` installs it, under `target/`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Where `cargo xtask test` puts the validator.
fn validator() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/openapi-validator")
}

/// What the validator says of a document; nothing if that is well.
fn complaints(document: &Value) -> Option<String> {
    let validator = validator();
    assert!(
        validator.join("openapi_spec_validator").is_dir(),
        "openapi-spec-validator is not in {}: `cargo xtask test` puts it there",
        validator.display()
    );
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("openapi.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let output = Command::new("python3")
        .args(["-m", "openapi_spec_validator"])
        .arg(&file)
        .env("PYTHONPATH", &validator)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (!output.status.success()).then_some(text)
}

fn description() -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_mandate")).arg("openapi").output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_description_of_the_interface_is_valid() {
    let description = description();
    assert_eq!(complaints(&description), None);
    // The validator sees what it is there for.
    let mut doubled = description;
    doubled["paths"]["/leader"]["head"]["operationId"] =
        doubled["paths"]["/leader"]["get"]["operationId"].clone();
    let complaint = complaints(&doubled).expect("two operations have one name");
    assert!(complaint.contains("leader"), "{complaint}");
}
