//! A headless Chromium, driven by WebDriver.
//!
//! The protocol is JSON over HTTP, and a dozen of its commands are enough here: the crates for it bring an HTTP
//! stack of their own.

// Each test file uses some of it.
#![allow(dead_code)]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

/// How an element is named in WebDriver's JSON.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// One browser at a time: it is heavy, and the members beside it have deadlines.
static ONE: Mutex<()> = Mutex::new(());

pub(crate) struct Browser {
    driver: Child,
    session: String,
    agent: ureq::Agent,
    /// Chromium's profile, and everything else it writes.
    _profile: TempDir,
    _one: MutexGuard<'static, ()>,
}

impl Browser {
    /// Fails without Chromium: a test that is skipped where it cannot run tells nobody anything.
    pub(crate) fn start() -> Self {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let profile = tempfile::tempdir().unwrap();
        let (driver, port) = start_driver(profile.path());
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(60)))
            .http_status_as_error(false)
            .build()
            .into();
        let base = format!("http://127.0.0.1:{}", port);
        let mut browser = Browser { driver, session: base, agent, _profile: profile, _one: one };
        // Without its sandbox, as containers allow none; it only ever sees pages of this test.
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--window-size=1200,1000",
            "--lang=en",
        ];
        let started = browser.call(
            "/session",
            &json!({ "capabilities": { "alwaysMatch": {
                "goog:chromeOptions": { "args": args },
                "goog:loggingPrefs": { "browser": "ALL" },
            } } }),
        );
        let id = started["sessionId"].as_str().unwrap_or_else(|| panic!("no Chromium: {started}"));
        browser.session = format!("{}/session/{id}", browser.session);
        browser
    }

    pub(crate) fn open(&self, url: &str) {
        self.call("/url", &json!({ "url": url }));
    }

    /// What an element shows; `None` if there is none. Hidden ones show nothing.
    pub(crate) fn text(&self, selector: &str) -> Option<String> {
        let text = self.script(&format!(
            "const it = document.querySelector({}); return it && (it.hidden ? '' : it.innerText);",
            json!(selector)
        ));
        text.as_str().map(str::to_owned)
    }

    pub(crate) fn is_disabled(&self, selector: &str) -> bool {
        self.script(&format!("return document.querySelector({}).disabled;", json!(selector)))
            == true
    }

    /// Clicks as a mouse does: on what is there and visible.
    pub(crate) fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.call(&format!("/element/{element}/click"), &json!({}));
    }

    /// Chooses an option of a list.
    pub(crate) fn choose(&self, selector: &str, option: &str) {
        self.click(&format!("{selector} option[value={option}]"));
    }

    /// Types into a field.
    pub(crate) fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.call(&format!("/element/{element}/value"), &json!({ "text": text }));
    }

    fn element(&self, selector: &str) -> String {
        let found = self.call("/element", &json!({ "using": "css selector", "value": selector }));
        found[ELEMENT].as_str().unwrap_or_else(|| panic!("no {selector}: {found}")).to_owned()
    }

    /// Runs the body of an async function in the page.
    pub(crate) fn script(&self, body: &str) -> Value {
        let script = format!("return (async () => {{ {body} }})();");
        self.call("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// What the browser's console complains of, but for requests that a daemon that is gone did not answer.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.call("/se/log", &json!({ "type": "browser" }));
        let entries = log.as_array().cloned().unwrap_or_default();
        let text = |entry: &Value| entry["message"].as_str().unwrap_or_default().to_owned();
        entries.iter().map(text).filter(|text| !text.contains("net::ERR_")).collect()
    }

    fn call(&self, path: &str, body: &Value) -> Value {
        let sent = self.agent.post(format!("{}{path}", self.session)).send_json(body);
        let mut response = sent.unwrap_or_else(|error| panic!("{path}: {error}"));
        let is_well = response.status().is_success();
        let mut answer: Value = response.body_mut().read_json().unwrap();
        assert!(is_well, "{path} {body}: {answer}");
        answer["value"].take()
    }
}

/// How often the driver is started anew when it ends before it says its port, as it does now and then on a busy host.
const STARTS: usize = 5;

/// chromedriver, and the port that it listens on.
fn start_driver(profile: &Path) -> (Child, u16) {
    let log = profile.join("chromedriver.log");
    for _ in 0..STARTS {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .env("HOME", profile)
            .env("TMPDIR", profile)
            .stdout(Stdio::piped())
            .stderr(File::options().create(true).append(true).open(&log).unwrap())
            .spawn()
            .expect("chromedriver starts: install the packages chromium and chromium-driver, or run `cargo xtask test`");
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let mut said = Vec::new();
        let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let port = line.strip_prefix("ChromeDriver was started successfully on port ");
            let port = port.and_then(|port| port.trim_end_matches('.').parse::<u16>().ok());
            said.push(line);
            port
        });
        if let Some(port) = port {
            // What it prints later is not read, and must not stop it.
            std::thread::spawn(move || lines.for_each(drop));
            return (driver, port);
        }
        let ended = driver.wait().unwrap();
        eprintln!("chromedriver ended before it said its port, {ended}: {said:?}");
    }
    let errors = std::fs::read_to_string(log).unwrap_or_default();
    panic!("chromedriver ended {STARTS} times before it said its port:\n{errors}");
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends Chromium and its many processes; then the driver itself.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
