//! The daemon's page in a real browser, before a real group: it shows who leads, moves it, follows it, and says
//! when the daemon is gone.

mod browser;
mod group;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use browser::Browser;
use group::{Group, within};

const BOUND: Duration = Duration::from_secs(30);

/// Waits until an element of the page says this.
fn says(browser: &Browser, selector: &str, wanted: &str) {
    let what = format!("{selector} says `{wanted}`");
    within(BOUND, &what, || browser.text(selector).filter(|text| text.contains(wanted)).map(drop));
}

#[test]
fn the_page_shows_the_leader_moves_it_and_follows_it() {
    let mut group = Group::new(3, "oracle = 'latency/10ms, history'\ntimeout = '2s'");
    group.start_all();
    let first = group.leader();
    group.agree(first);
    let browser = Browser::start();
    browser.open(&format!("http://{}/", group.api(first)));
    says(&browser, "#leader", &format!("p{first} this member"));
    says(&browser, "#group", "test");
    says(&browser, "#facts", "latency/10ms, history");
    says(&browser, "#events", "LEADING in term");
    says(&browser, "#left", "s");
    for other in (1..=3).filter(|id| *id != first) {
        says(&browser, &format!("tr[data-member=p{other}]"), "answers");
    }

    // A transfer, clicked.
    let second = if first == 3 { 1 } else { 3 };
    browser.choose("#to", &format!("p{second}"));
    browser.click("#transfer");
    says(&browser, "#answer", &format!("Handed over to p{second}"));
    says(&browser, "#leader", &format!("p{second}"));
    assert_eq!(group.leader_except(&[first]), second);
    says(&browser, "#elections summary", &format!("p{second}"));

    // Why: one click away.
    browser.click("#elections details:last-child summary");
    says(&browser, "#elections details[open] .explanation", "No leader was known before");

    // The new leader dies; this page shows who is next.
    group.agree(second);
    group.kill(second);
    let third = group.leader_except(&[second]);
    says(&browser, "#leader", &format!("p{third}"));
    says(&browser, &format!("tr[data-member=p{second}]"), "does not answer");
    says(&browser, "#events", &format!("p{second} does not answer"));

    // The daemon of this page is gone, and comes back.
    group.kill(first);
    says(&browser, "#gone", "The daemon does not answer");
    assert!(browser.is_disabled("#resign"));
    group.start(first);
    within(BOUND, "the page has found the daemon again", || {
        browser.text("#gone").filter(String::is_empty).map(drop)
    });
    says(&browser, &format!("tr[data-member=p{second}]"), "does not answer");
    assert_eq!(browser.complaints(), [""; 0], "the browser refused something, or a script failed");
}

#[test]
fn what_a_member_says_is_shown_as_text_and_nothing_else() {
    let mut group = Group::new(1, "");
    group.start_all();
    let leader = group.leader();
    let browser = Browser::start();
    browser.open(&format!("http://{}/", group.api(leader)));
    says(&browser, "#leader", "p1 this member");
    let shown = browser.script(
        "const { events } = await import('/view.js');
         events([{ id: 1, at_ms: 0, kind: 'elected', text: '<img src=x onerror=alert(1)>' }], true);
         return document.querySelector('#events').textContent + document.querySelectorAll('#events img').length;",
    );
    let shown = shown.as_str().unwrap();
    assert!(shown.contains("<img src=x onerror=alert(1)>0"), "{shown}");
    // Nothing from elsewhere is loaded, whatever got into the page.
    let refused = browser.script(
        "return await fetch('http://localhost:1/').then(() => 'loaded', (error) => error.name);",
    );
    assert_eq!(refused, "TypeError");
    let inline = browser.script(
        "const script = document.createElement('script'); script.textContent = 'window.ran = true';
         document.body.append(script); return String(window.ran);",
    );
    assert_eq!(inline, "undefined", "the policy forbids scripts that are not files of the daemon");
}

#[test]
fn the_page_asks_for_the_token_and_shows_nothing_before() {
    let mut group = Group::new(1, "");
    let token = group.directory.path().join("api.token");
    std::fs::write(&token, "correct-horse-battery-staple").unwrap();
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    let config = std::fs::read_to_string(group.config(1)).unwrap();
    std::fs::write(group.config(1), config + "[api_access]\ntoken_file = 'api.token'\n").unwrap();
    group.start_all();
    group.leader();
    let browser = Browser::start();
    browser.open(&format!("http://{}/", group.api(1)));
    says(&browser, "#token", "wants a token");
    assert_eq!(browser.text("#main").as_deref(), Some(""));
    browser.type_into("#secret", "wrong-horse-battery-staple");
    browser.click("#token button");
    says(&browser, "#wrong", "That is not the token");
    browser.type_into("#secret", "correct-horse-battery-staple");
    browser.click("#token button");
    says(&browser, "#leader", "p1 this member");
    says(&browser, "#events", "LEADING in term");
}
