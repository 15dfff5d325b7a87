//! The daemon's interface, of real processes: its answers are as it describes them, its figures are what
//! Prometheus reads, its doors are shut to who may not ask and open to who must.

mod exposition;
mod group;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use group::{Group, mandate, within};
use serde_json::{Value, json};

const TOKEN: &str = "correct-horse-battery-staple";

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A group with a leader that all agree on; the leader, and another.
fn running(group: &mut Group) -> (u32, u32) {
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    (leader, if leader == 1 { 2 } else { 1 })
}

/// The description, with schemas that allow nothing they do not name.
fn description(group: &Group, id: u32) -> Value {
    let (code, body) = group.http(id, "GET", "/openapi.json", "").unwrap();
    assert_eq!(code, 200);
    let mut description: Value = serde_json::from_str(&body).unwrap();
    for schema in description["components"]["schemas"].as_object_mut().unwrap().values_mut() {
        if schema["properties"].is_object() {
            schema["additionalProperties"] = json!(false);
        }
    }
    description
}

/// Whether a body is as the description says of that answer.
fn fits(description: &Value, path: &str, code: &str, body: &Value) -> Result<(), String> {
    let content = &description["paths"][path]["get"]["responses"][code]["content"];
    let kind = content.as_object().and_then(|kinds| kinds.values().next());
    let mut schema =
        kind.unwrap_or_else(|| panic!("{path} {code}: not described"))["schema"].clone();
    schema["components"] = description["components"].clone();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<_> = validator.iter_errors(body).map(|error| error.to_string()).collect();
    if errors.is_empty() { Ok(()) } else { Err(format!("{path}: {errors:?}: {body}")) }
}

#[test]
fn answers_are_as_the_description_says_and_every_route_is_in_it() {
    let mut group = Group::new(3, "oracle = 'latency/10ms, history'\nguarantee = 'leased'");
    let (leader, follower) = running(&mut group);
    let description = description(&group, leader);
    for (path, operations) in description["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            // Asked of a follower, so that nothing changes; the stream does not end.
            let method = method.to_uppercase();
            if path != "/v1/events" {
                // Of a term that is over.
                let body = if path == "/v1/resign" { r#"{"term":0}"# } else { "{}" };
                let (code, _) = group.http(follower, &method, path, body).unwrap();
                // Where there are no roles, that is what the description says.
                let is_described = operation["responses"][code.to_string()].is_object();
                assert!(
                    ![404, 405].contains(&code) || is_described,
                    "{method} {path} is described, and answers {code}"
                );
            }
        }
    }
    let paths: Vec<_> = description["paths"].as_object().unwrap().keys().collect();
    let expected = [
        "/leader",
        "/livez",
        "/metrics",
        "/openapi.json",
        "/readyz",
        "/v1/elections",
        "/v1/events",
        "/v1/mandate",
        "/v1/mandate/holders/{name}",
        "/v1/members",
        "/v1/members/{member}",
        "/v1/resign",
        "/v1/roles",
        "/v1/roles/{role}",
        "/v1/score",
        "/v1/status",
        "/v1/transfer",
        "/v1/value",
    ];
    assert_eq!(paths, expected);

    let ask = |id, path: &str| -> (String, Value) {
        let (code, body) = group.http(id, "GET", path, "").unwrap();
        (code.to_string(), serde_json::from_str(&body).unwrap())
    };
    for id in [leader, follower] {
        for path in ["/leader", "/v1/status", "/v1/members", "/v1/elections"] {
            let (code, body) = ask(id, path);
            fits(&description, path, &code, &body).unwrap();
        }
    }
    let event = first_event(&group, leader);
    fits(&description, "/v1/events", "200", &event).unwrap();

    // The check can fail: a field that is missing, of another type, or not described.
    let (_, status) = ask(leader, "/v1/status");
    for (field, value) in [("group", None), ("term", Some(json!("seven"))), ("new", Some(json!(1)))]
    {
        let mut wrong = status.clone();
        match value {
            Some(value) => wrong[field] = value,
            None => drop(wrong.as_object_mut().unwrap().remove(field)),
        }
        assert!(fits(&description, "/v1/status", "200", &wrong).is_err(), "{field}");
    }
    let printed = mandate().arg("openapi").output().unwrap();
    let printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(printed["paths"], description["paths"]);
}

/// The first event that a member remembers.
fn first_event(group: &Group, id: u32) -> Value {
    let mut stream = TcpStream::connect(group.api(id)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET /v1/events?after=0 HTTP/1.1\r\nHost: {}\r\n\r\n", group.api(id)).unwrap();
    let mut heard = String::new();
    loop {
        let mut some = [0; 512];
        let read = stream.read(&mut some).unwrap();
        heard += std::str::from_utf8(&some[..read]).unwrap();
        let whole = heard.split_once("\n\n").map_or("", |(before, _)| before);
        if let Some(data) = whole.lines().find_map(|line| line.strip_prefix("data: ")) {
            assert!(whole.lines().any(|line| line == "id: 1"), "{whole}");
            return serde_json::from_str(data).unwrap();
        }
    }
}

#[test]
fn events_are_told_with_their_numbers_and_kinds() {
    let mut group = Group::new(1, "");
    group.start_all();
    group.leader();
    let event = first_event(&group, 1);
    assert_eq!(event["id"], 1);
    assert!(event["kind"].is_string() && event["text"].is_string(), "{event}");
    let (_, elections) = group.http(1, "GET", "/v1/elections", "").unwrap();
    let elections: Value = serde_json::from_str(&elections).unwrap();
    let at = elections[0]["at_ms"].as_u64().unwrap();
    assert!(at > 1_600_000_000_000 && elections[0]["until_ms"].is_null(), "{elections}");
    assert!(!elections[0]["why"].as_str().unwrap().is_empty());
}

#[test]
fn prometheus_can_read_the_figures_and_finds_what_it_needs() {
    let mut group = Group::new(3, "oracle = 'latency/10ms, history'\nguarantee = 'leased'");
    let (leader, follower) = running(&mut group);
    let scrape = |id| exposition::parse(&group.http(id, "GET", "/metrics", "").unwrap().1).unwrap();
    let renewed = within(Duration::from_secs(20), "renewals are counted", || {
        let figures = scrape(leader);
        (figures.value("mandate_renewals_total", &[]) > Some(1.0)).then_some(figures)
    });
    assert_eq!(renewed.value("leader_election_master_status", &[("name", "test")]), Some(1.0));
    let left = renewed.value("mandate_lease_remaining_seconds", &[]).unwrap();
    assert!(left > 0.0 && left <= 4.0, "{left}");
    assert!(renewed.value("mandate_score", &[("term", "latency")]).unwrap() >= 0.0);
    let led: f64 = renewed.all("mandate_transitions_total", ("to", "leading")).sum();
    assert!(led >= 1.0);
    let standby = scrape(follower);
    assert_eq!(standby.value("leader_election_master_status", &[("name", "test")]), Some(0.0));
    assert!(standby.value("mandate_lease_remaining_seconds", &[]).is_none());
    let peer = format!("p{leader}");
    assert_eq!(standby.value("mandate_member_suspected", &[("member", &peer)]), Some(0.0));
    assert_eq!(standby.kind("mandate_transitions_total"), Some("counter"));
}

/// A file that only its owner can read.
fn write_secret(path: &Path, content: &str) {
    let mut options = std::fs::OpenOptions::new();
    let file = options.create(true).truncate(true).write(true).mode(0o600).open(path);
    file.unwrap().write_all(content.as_bytes()).unwrap();
}

fn append(path: &Path, lines: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(lines.as_bytes()).unwrap();
}

#[test]
fn with_a_token_only_who_has_it_gets_more_than_probes_and_the_empty_page() {
    let mut group = Group::new(1, "");
    let file = group.directory.path().join("api.token");
    write_secret(&file, TOKEN);
    append(&group.config(1), "[api_access]\ntoken_file = 'api.token'\n");
    group.start_all();
    group.leader();
    let code = |path: &str, headers: &str| group.http_with(1, "GET", path, "", headers).unwrap().0;
    for path in ["/leader", "/livez", "/readyz", "/openapi.json", "/", "/page.js", "/page.css"] {
        assert_eq!(code(path, ""), 200, "{path}");
    }
    for path in ["/metrics", "/v1/status", "/v1/events", "/nothing"] {
        assert_eq!(code(path, ""), 401, "{path}");
    }
    let wrong = "Authorization: Bearer correct-horse-battery-stable\r\n";
    let right = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!((code("/metrics", wrong), code("/metrics", &right)), (401, 200));
    assert_eq!(group.http(1, "POST", "/v1/resign", "").unwrap().0, 401);

    let refused = group.ask(1, &["status"]);
    assert!(text(&refused).contains("--token-file"), "{refused:?}");
    let token = file.display().to_string();
    let status = group.ask(1, &["status", "--token-file", &token]);
    assert!(text(&status).contains("p1 of test LEADS"), "{status:?}");
    let given = mandate()
        .args(["history", "--api", &group.api(1)])
        .env("MANDATE_TOKEN_FILE", &token)
        .output()
        .unwrap();
    assert!(given.status.success(), "{given:?}");

    // A new token counts without a restart; one that cannot be used does not.
    write_secret(&file, "short");
    group.signal(1, "-HUP");
    within(Duration::from_secs(30), "the short one is refused", || {
        group.log(1).contains("the old stays").then_some(())
    });
    assert_eq!(code("/metrics", &right), 200);
    write_secret(&file, "another-token-of-enough-letters");
    let newer = "Authorization: Bearer another-token-of-enough-letters\r\n";
    within(Duration::from_secs(30), "the new token", || {
        (code("/metrics", newer) == 200).then_some(())
    });
    assert_eq!(code("/metrics", &right), 401, "the old one");
}

/// An authority, and a certificate of it for 127.0.0.1.
fn write_certificates(directory: &Path) {
    let authority = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root = params.self_signed(&authority).unwrap();
    let issuer = rcgen::Issuer::new(params, authority);
    let key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let own = own.signed_by(&key, &issuer).unwrap();
    std::fs::write(directory.join("web-ca.pem"), root.pem()).unwrap();
    std::fs::write(directory.join("web.pem"), own.pem()).unwrap();
    write_secret(&directory.join("web.key"), &key.serialize_pem());
}

#[test]
fn with_a_certificate_the_interface_speaks_https_and_commands_check_it() {
    let mut group = Group::new(1, "");
    write_certificates(group.directory.path());
    append(&group.config(1), "[api_access]\ncertificate = 'web.pem'\nkey = 'web.key'\n");
    group.start_all();
    let url = format!("https://{}", group.api(1));
    let file = |name: &str| group.directory.path().join(name).display().to_string();
    let status = |args: &[&str]| {
        let output = mandate().args(["status", "--api", &url]).args(args).output().unwrap();
        (output.status.success(), text(&output))
    };
    within(Duration::from_secs(20), "an answer over https", || {
        let (is_well, shown) = status(&["--ca", &file("web-ca.pem")]);
        (is_well && shown.contains("p1 of test LEADS")).then_some(())
    });
    let (ca, api) = (file("web-ca.pem"), group.api(1));
    let without_scheme = mandate().args(["status", "--api", &api, "--ca", &ca]).output().unwrap();
    assert!(without_scheme.status.success(), "{without_scheme:?}");
    let (is_well, shown) = status(&[]);
    assert!(!is_well && shown.contains("--ca"), "{shown}");
    let (is_well, shown) = status(&["--ca", &file("certs/ca.pem")]);
    assert!(!is_well, "an authority that did not sign it: {shown}");
    assert_eq!(group.http(1, "GET", "/leader", ""), None, "nothing without TLS");
}

/// `run` waits for a daemon that is not there yet; with one that is there and cannot be understood it ends at once.
#[test]
fn a_daemon_that_answers_in_another_way_is_told_of_at_once_with_what_to_do() {
    let mut group = Group::new(2, "");
    write_certificates(group.directory.path());
    append(&group.config(1), "[api_access]\ncertificate = 'web.pem'\nkey = 'web.key'\n");
    group.start_all();
    within(Duration::from_secs(20), "both listen", || {
        (1..=2).all(|id| TcpStream::connect(group.api(id)).is_ok()).then_some(())
    });
    let ca = |name: &str| group.directory.path().join(name).display().to_string();
    let (right, wrong) = (ca("web-ca.pem"), ca("certs/ca.pem"));
    let [encrypted, plain] = [group.api(1), group.api(2)];
    let cases = [
        (
            format!("https://{encrypted}"),
            Some(&wrong),
            "not signed by the authority that --ca names",
        ),
        (format!("https://{plain}"), Some(&right), "it does not speak TLS: write http://"),
        (format!("http://{encrypted}"), None, "it does not speak HTTP. If it speaks https"),
    ];
    for (url, ca, expected) in &cases {
        for command in [&["status"][..], &["run", "writer"]] {
            let mut asked = mandate();
            asked.args(command).args(["--api", url]).args(ca.iter().flat_map(|ca| ["--ca", ca]));
            if command[0] == "run" {
                asked.args(["--", "true"]);
            }
            let mut asked = asked.stderr(Stdio::piped()).spawn().unwrap();
            within(Duration::from_secs(30), "it ends", || asked.try_wait().unwrap());
            let output = asked.wait_with_output().unwrap();
            let shown = text(&output);
            assert_eq!(output.status.code(), Some(1), "{command:?} {url}: {shown}");
            assert!(shown.contains(expected), "{command:?} {url}: {shown}");
            assert!(shown.contains(&format!("something answers at {url}")), "{shown}");
        }
    }
}

#[test]
fn an_interface_that_others_can_reach_is_refused_without_token_or_tls() {
    let group = Group::new(1, "");
    let start =
        || mandate().args(["node", "--new", "--config"]).arg(group.config(1)).output().unwrap();
    let config = std::fs::read_to_string(group.config(1)).unwrap();
    std::fs::write(group.config(1), config.replace(&group.api(1), "0.0.0.0:1")).unwrap();
    let refused = start();
    assert!(!refused.status.success());
    assert!(text(&refused).contains("needs [api_access] with a token_file"), "{refused:?}");
    // And a token that others can read is none.
    std::fs::write(group.directory.path().join("api.token"), TOKEN).unwrap();
    append(&group.config(1), "[api_access]\ntoken_file = 'api.token'\n");
    assert!(text(&start()).contains("chmod 600"), "{:?}", start());
}

#[test]
fn slow_and_silent_connections_do_not_keep_a_balancer_from_its_answer() {
    let mut group = Group::new(1, "");
    group.start_all();
    group.leader();
    let head = format!("POST /v1/transfer HTTP/1.1\r\nHost: {}\r\n", group.api(1));
    let body = format!("{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{");
    // More of each kind than there may be in all: silent, amid the head, amid the body.
    let mut held = Vec::new();
    for begun in ["", &head, &body] {
        for _ in 0..280 {
            let mut stream = TcpStream::connect(group.api(1)).unwrap();
            // It may have made room for another already.
            let _ = stream.write_all(begun.as_bytes());
            held.push(stream);
            if held.len() > 400 {
                held.remove(0);
            }
        }
        let (code, _) = group.http(1, "GET", "/leader", "").expect("an answer");
        assert_eq!(code, 200);
    }
    // What is left unread when the answer is given resets the connection, and the answer may be lost with it.
    let refused = group.http(1, "PUT", "/v1/score", &"x".repeat(20_000));
    assert!(refused.is_none_or(|(code, _)| code == 413), "a body that is too large");
    let header = format!("X-Long: {}\r\n", "x".repeat(20_000));
    let refused = group.http_with(1, "GET", "/leader", "", &header);
    assert!(refused.is_none_or(|(code, _)| code == 431), "a head that is too large");
    assert_eq!(group.leaders(), [1]);
}

#[test]
fn a_resignation_is_carried_out_also_if_whoever_asked_has_gone() {
    let mut group = Group::new(3, "");
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    let hold = |id| group.http(id, "PUT", "/v1/mandate/holders/one", "").map(|(code, _)| code);
    assert_eq!(hold(leader), Some(200));
    // It has to wait for the hold, and nobody waits for it.
    let mut asking = TcpStream::connect(group.api(leader)).unwrap();
    let host = group.api(leader);
    write!(asking, "POST /v1/resign HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    within(Duration::from_secs(5), "nobody new may hold it", || {
        matches!(hold(leader), Some(410 | 409)).then_some(())
    });
    drop(asking);
    let next = group.leader_except(&[leader]);
    within(Duration::from_secs(5), "the next can be held", || {
        (hold(next) == Some(200)).then_some(())
    });
    // A transfer that cannot be ends nobody's hold.
    let (code, _) = group.http(next, "POST", "/v1/transfer", r#"{"to":"p9"}"#).unwrap();
    assert_eq!(code, 409);
    let (_, mandate) = group.http(next, "GET", "/v1/mandate", "").unwrap();
    assert!(mandate.contains(r#""ending":false"#), "{mandate}");
}
