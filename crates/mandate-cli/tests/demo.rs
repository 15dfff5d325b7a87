//! The demo: five real processes live through its script, and nothing of it is left behind.

mod browser;
mod group;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use browser::Browser;
use group::{mandate, within};
use mandate_servers::testing::Running;
use serde_json::Value;
use tempfile::TempDir;

/// Processes that run with something of this directory on their command line.
fn processes_of(directory: &Path) -> usize {
    let directory = directory.display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let command = |process: std::fs::DirEntry| {
        std::fs::read(process.path().join("cmdline")).unwrap_or_default()
    };
    let is_ours = |line: Vec<u8>| String::from_utf8_lossy(&line).contains(&directory);
    processes.map(command).filter(|line| is_ours(line.clone())).count()
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

/// Starts the demo with a temporary directory of its own.
fn start(args: &[&str], temporary: &TempDir) -> Child {
    let mut command = mandate();
    command.arg("demo").args(args).env("TMPDIR", temporary.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn the_scripted_demo_tells_of_every_strike_and_every_new_leader() {
    let temporary = tempfile::tempdir().unwrap();
    let demo = start(&["--for", "16s", "-o", "json"], &temporary);
    let output = demo.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}");
    let lines: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text = |line: &Value| line["text"].as_str().unwrap().to_owned();
    let place = |part: &str| lines.iter().position(|line| text(line).contains(part));
    let faults = ["is killed", "is cut off", "is paused", "gets 5000 requests"];
    let places: Vec<_> = faults.iter().map(|fault| place(fault).expect(&told)).collect();
    assert!(places.is_sorted(), "{told}");
    let mut last = 0;
    for fault in places {
        // The next leader has a higher term than anyone before.
        let next = &lines[fault + 1..];
        let next = next.iter().map(text).find(|text| text.contains("leads in term")).expect(&told);
        let term: String =
            next.split("term ").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
        let term: u64 = term.parse().unwrap();
        assert!(term > last, "{told}");
        last = term;
    }
    assert!(place("has ended by itself").is_none(), "{told}");
    assert!(text(lines.last().unwrap()).contains("their files removed"), "{told}");
    within(Duration::from_secs(10), "nothing is left", || {
        (is_empty(temporary.path()) && processes_of(temporary.path()) == 0).then_some(())
    });
}

/// Waits until somebody leads.
fn until_led(demo: &mut Child) -> impl Iterator<Item = String> + use<> {
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.find(|line| line.contains("leads in term")).expect("someone leads");
    lines
}

#[test]
fn buttons_on_the_page_strike_and_revive_members() {
    let temporary = tempfile::tempdir().unwrap();
    // The script's first scene comes after a minute.
    let mut demo = Running(start(&["--for", "10min"], &temporary));
    let mut lines = BufReader::new(demo.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let page =
        lines.find_map(|line| Some(line.strip_prefix("The page: ")?.split(' ').next()?.to_owned()));
    lines.find(|line| line.contains("leads in term")).expect("someone leads");
    let browser = Browser::start();
    browser.open(&page.expect("the page's address is printed"));
    let bound = Duration::from_secs(30);
    let says = |selector: &str, wanted: &str| {
        let found = || browser.text(selector).filter(|text| text.contains(wanted)).map(drop);
        within(bound, &format!("{selector} says `{wanted}`"), found);
    };
    let shown = || browser.text("#leader").filter(|text| text.starts_with('p'));
    let first = within(bound, "a leader is shown", shown);
    let row = format!("tr[data-member={first}]");
    browser.click(&format!("{row} [data-act=kill]"));
    says(&row, "killed");
    let second = within(bound, "another leads", || shown().filter(|leader| *leader != first));
    says("#story", &format!("{first} in "));
    browser.click(&format!("{row} [data-act=revive]"));
    // On a busy host leadership may have moved on meanwhile; it does not come back to who has just started.
    within(bound, "it follows the leader that is shown", || {
        let leader = shown()?;
        browser.text(&row)?.contains(&format!("follows {leader}")).then_some(())
    });
    let other =
        (1..=5).map(|id| format!("p{id}")).find(|id| *id != first && *id != second).unwrap();
    let row = format!("tr[data-member={other}]");
    browser.click(&format!("{row} [data-act=cut]"));
    says(&row, "cut off");
    browser.click(&format!("{row} [data-act=busy]"));
    says(&row, "5000/s");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn keys_in_a_terminal_do_the_same() {
    let temporary = tempfile::tempdir().unwrap();
    let program = format!("{} demo", env!("CARGO_BIN_EXE_mandate"));
    // `script` gives it a terminal.
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &program, "/dev/null"]);
    terminal.env("TMPDIR", temporary.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut demo = Running(terminal.spawn().expect("`script` of util-linux is there"));
    let mut lines = BufReader::new(demo.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut until = |wanted: &str| lines.find(|line| line.contains(wanted)).expect(wanted);
    let mut keys = demo.0.stdin.take().unwrap();
    let mut press = |key: &str| keys.write_all(key.as_bytes()).and_then(|()| keys.flush()).unwrap();
    until("Keys: ");
    until("leads in term");
    press("k");
    assert!(until("is killed").contains(", the leader,"));
    until("leads in term");
    press("2p");
    until("p2 in London");
    press("r");
    until("p2 in London is back");
    press("q");
    until("their files removed");
    let ended = within(Duration::from_secs(20), "it ends", || demo.0.try_wait().unwrap());
    assert!(ended.success());
}

#[test]
fn a_demo_that_is_interrupted_or_killed_leaves_nothing_behind() {
    for signal in ["-INT", "-KILL"] {
        let temporary = tempfile::tempdir().unwrap();
        let mut running = Running(start(&["--for", "10min"], &temporary));
        let demo = &mut running.0;
        let rest = until_led(demo);
        assert!(processes_of(temporary.path()) >= 5, "the members are processes");
        let sent = Command::new("kill").args([signal, &demo.id().to_string()]).status();
        assert!(sent.unwrap().success());
        let ended = within(Duration::from_secs(20), "it ends", || demo.try_wait().unwrap());
        assert_eq!(ended.success(), signal == "-INT");
        drop(rest);
        within(Duration::from_secs(20), "nothing is left", || {
            (is_empty(temporary.path()) && processes_of(temporary.path()) == 0).then_some(())
        });
    }
}
