//! Groups that change while somebody acts on their mandates, with real member processes: a host that is replaced, a group that grows and
//! shrinks, a list that is edited by hand while the network is cut.

mod group;

use std::collections::BTreeMap;
use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use group::{Group, within};
use serde_json::Value;

const LONG: Duration = Duration::from_secs(120);

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs a command, which must succeed; what it said.
fn ask(group: &Group, id: u32, args: &[&str]) -> String {
    let output = group.ask(id, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    text(&output)
}

fn get(group: &Group, id: u32, path: &str) -> Option<Value> {
    let (_, body) = group.http(id, "GET", path, "")?;
    serde_json::from_str(&body).ok()
}

fn term(group: &Group, id: u32) -> Value {
    get(group, id, "/v1/status").unwrap()["term"].clone()
}

#[test]
fn a_dead_host_is_replaced_with_three_commands_in_the_same_term() {
    let mut group = Group::with_spares(3, 1, "guarantee = 'leased'");
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    let reign = term(&group, leader);
    let others: Vec<_> = (1..=3).filter(|id| *id != leader).collect();
    let (dead, left) = (others[0], others[1]);
    group.kill(dead);

    group.certify(4);
    group.start(4);
    let (name, address) = (format!("p{dead}"), group.address(4).to_string());
    // Asked of a member that follows.
    let said = ask(&group, left, &["member", "replace", &name, "p4", &address]);
    assert!(said.contains(&format!("p4 votes in the place of {name}")), "{said}");

    group.agree(leader);
    assert_eq!((group.leaders(), term(&group, leader)), (vec![leader], reign), "nobody else led");
    for id in [leader, left, 4] {
        let voters = within(LONG, "it has the new list", || {
            let members = get(&group, id, "/v1/members")?.as_array()?.clone();
            let voter = |it: &Value| {
                (it["part"] == "voter").then(|| it["id"].as_str().map(str::to_owned))?
            };
            let voters: Vec<_> = members.iter().filter_map(voter).collect();
            (!voters.contains(&name)).then_some(voters)
        });
        assert_eq!((voters.len(), voters.contains(&"p4".to_owned())), (3, true), "{voters:?}");
    }
    // It counts: with p4 and the leader there is a quorum.
    group.kill(left);
    let (code, _) = group.http(4, "POST", "/v1/transfer", "{\"to\":\"p4\"}").unwrap();
    assert_eq!(code, 204);
    assert_eq!(group.leader_except(&[leader]), 4);
}

#[test]
fn a_request_without_an_answer_has_an_unknown_outcome_and_ends_no_later_term() {
    let mut group = Group::with_spares(3, 0, "guarantee = 'leased'");
    group.start_all();
    let former = group.leader();
    group.agree(former);
    let asked = if former == 1 { 2 } else { 1 };
    // The request reaches the leader's host, and nobody reads it there.
    group.pause(former);
    let (code, said) = group.http(asked, "POST", "/v1/resign", "").unwrap();
    assert_eq!(code, 504, "{said}");
    assert!(said.contains("it is not known whether it was done"), "{said}");
    let next = within(LONG, "another leads", || {
        let leads = |id: &u32| matches!(group.http(*id, "GET", "/leader", ""), Some((200, _)));
        (1..=3).filter(|id| *id != former).find(leads)
    });
    let reign = term(&group, next);
    group.signal(former, "-CONT");
    group.agree(next);
    // It comes to lead again, in a term that nobody has asked to end. What came late was for another.
    let back = format!("p{former}");
    within(LONG, "leadership is handed over", || {
        group.ask(asked, &["transfer", &back]).status.success().then_some(())
    });
    group.agree(former);
    assert!(term(&group, former).as_u64() > reign.as_u64());
    assert_eq!(group.leaders(), [former]);
    // Nobody leads, and that is said.
    (1..=3).filter(|id| *id != asked).for_each(|id| group.kill(id));
    within(LONG, "no leader is known", || {
        let (code, said) = group.http(asked, "POST", "/v1/resign", "")?;
        (code == 409 && said.contains("knows of no leader")).then_some(())
    });
    let refused = group.ask(asked, &["member", "remove", &back]);
    assert!(text(&refused).contains("this member knows of no leader"), "{refused:?}");
}

#[test]
fn what_another_member_asks_for_waits_until_nobody_acts_on_the_mandate() {
    let mut group = Group::with_spares(2, 0, "guarantee = 'leased'\nlease = '30s'");
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    let holder = "/v1/mandate/holders/client";
    let (code, held) = group.http(leader, "PUT", holder, "").unwrap();
    assert_eq!(code, 200, "{held}");
    let group = &group;
    thread::scope(|scope| {
        let asked = scope.spawn(|| group.http(3 - leader, "POST", "/v1/resign", ""));
        within(LONG, "it is being given up, and held still", || {
            let mandate = get(group, leader, "/v1/mandate")?;
            let is_held = mandate["holders"].as_array()?.iter().any(|it| it == "client");
            (mandate["ending"] == true && is_held && mandate["term"].is_u64()).then_some(())
        });
        assert_eq!(group.http(leader, "PUT", "/v1/mandate/holders/other", "").unwrap().0, 410);
        group.http(leader, "DELETE", holder, "").unwrap();
        let (code, said) = asked.join().unwrap().unwrap();
        assert_eq!(code, 204, "{said}");
    });
    assert_eq!(group.leader_except(&[leader]), 3 - leader);
}

/// When somebody acted in a term, first and last.
type Acts = Mutex<BTreeMap<u64, (Instant, Instant)>>;

/// Holds a member's mandate for as long as it can be held, and acts as often as it can: where the hold of one that asked before is
/// not over yet.
fn act(group: &Group, id: u32, acts: &Acts, stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        let asked = Instant::now();
        let answer = group.http(id, "PUT", "/v1/mandate/holders/client", "");
        match answer {
            Some((200, body)) => {
                let held: Value = serde_json::from_str(&body).unwrap();
                let until =
                    asked + Duration::from_secs_f64(held["hold_ms"].as_f64().unwrap() / 1e3);
                let now = Instant::now();
                if now < until {
                    let mut acts = acts.lock().unwrap();
                    let acted = acts.entry(held["term"].as_u64().unwrap()).or_insert((now, now));
                    acted.1 = acted.1.max(now);
                }
            }
            // It is being given up: who holds it lets go.
            Some((410, _)) => {
                group.http(id, "DELETE", "/v1/mandate/holders/client", "");
            }
            _ => thread::sleep(Duration::from_millis(20)),
        }
    }
}

#[test]
fn from_one_member_to_seven_and_back_to_three_one_acts_at_a_time_and_terms_end_by_transfers() {
    let mut group = Group::with_spares(1, 6, "guarantee = 'leased'");
    group.start_all();
    assert_eq!(group.leader(), 1);
    // Each joins with an empty state, and waits.
    (2..=7).for_each(|id| group.start(id));
    let (acts, stop) = (Acts::default(), AtomicBool::new(false));
    let handed_over = thread::scope(|scope| {
        for id in 1..=7 {
            let (group, acts, stop) = (&group, &acts, &stop);
            scope.spawn(move || act(group, id, acts, stop));
        }
        // Also if something below fails.
        let ended = Ended(&stop);
        for id in 2..=7 {
            let (name, address) = (format!("p{id}"), group.address(id).to_string());
            // Asked of the member that joined last.
            let said = ask(&group, id - 1, &["member", "add", &name, &address]);
            assert!(said.contains(&format!("{name} votes")), "{said}");
        }
        assert_eq!(group.leaders(), [1], "growing costs no leadership");
        // Two leaders and two of the others leave: the first leader is asked itself, and then a member that stays.
        let mut handed_over = 0;
        let mut present: Vec<u32> = (1..=7).collect();
        for leads in [true, false, true, false] {
            let leader = group.leader();
            let leaves = *present.iter().find(|id| (**id == leader) == leads).unwrap();
            present.retain(|id| *id != leaves);
            let asked = match handed_over {
                0 => leader,
                _ => *present.iter().find(|id| **id != leader).unwrap(),
            };
            let said = ask(&group, asked, &["member", "remove", &format!("p{leaves}")]);
            assert!(said.contains(&format!("p{leaves} is no member any more")), "{said}");
            assert_eq!(said.contains("has handed leadership over to"), leads, "{said}");
            handed_over += usize::from(leads);
        }
        let leader = group.leader();
        let acted = term(&group, leader).as_u64().unwrap();
        within(LONG, "somebody acts in the last term", || {
            acts.lock().unwrap().contains_key(&acted).then_some(())
        });
        let list = ask(&group, leader, &["member", "list"]);
        assert!(list.contains("3 members vote"), "{list}");
        drop(ended);
        handed_over
    });
    let acts = acts.into_inner().unwrap();
    let ordered: Vec<_> = acts.values().copied().collect();
    assert!(ordered.windows(2).all(|two| two[0].1 <= two[1].0), "terms overlap: {acts:?}");
    assert_eq!(acts.len(), 1 + handed_over, "somebody acted in each term: {acts:?}");
    // Every term but the first began because somebody asked for it.
    let leader = group.leader();
    assert_eq!(term(&group, leader).as_u64(), acts.keys().next_back().copied());
    let elections = get(&group, leader, "/v1/elections").unwrap();
    let of =
        |term: u64| elections.as_array().unwrap().iter().find(|it| it["term"] == term).cloned();
    for term in acts.keys().skip(1) {
        let election = of(*term).unwrap();
        assert_eq!(election["handed_over_by"], "request", "{election}");
    }
}

/// Says that it is over when it goes out of scope.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A list that was edited by hand from three to five members, one host after the other, and a network that falls apart meanwhile: p1, p4 and p5
/// are a majority of five, p2 and p3 of three.
#[test]
fn an_edited_list_of_five_beside_one_of_three_makes_no_second_leader() {
    let mut group = Group::with_spares(3, 2, "guarantee = 'leased'");
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    let list: String = (1..=5).map(|id| format!("p{id} = '{}'\n", group.address(id))).collect();
    for id in [1, 4, 5] {
        let file = std::fs::read_to_string(group.config(id)).unwrap();
        let (before, rest) = file.split_once("[peers]\n").unwrap();
        let rest = rest.split_once("[tls]").unwrap().1;
        let own = format!("p{id} = '{}'\n", group.address(id));
        let file = format!("{before}[peers]\n{}[tls]{rest}", list.replace(&own, ""));
        std::fs::write(group.config(id), file).unwrap();
    }
    // As it is told to start, p1 says what is wrong and ends.
    group.signal(1, "-TERM");
    assert!(group.ended(1).success());
    group.launch(1, &["node"]);
    assert!(!group.ended(1).success());
    let log = group.log(1);
    assert!(log.contains("p1 p2 p3") && log.contains("p1 p2 p3 p4 p5"), "{log}");
    // Insisting gives a member that waits for all of its list.
    group.launch(1, &["node", "--members-changed"]);
    for id in [4, 5] {
        group.certify(id);
        group.launch(id, &["node", "--new"]);
    }
    let waits = |id| {
        let status = get(&group, id, "/v1/status")?;
        let waits = status["has_vote"] == false && status["leader"].is_null();
        (waits && status["no_vote"].as_str()?.contains("p2")).then_some(())
    };
    // One side of the cut: three of five are there, and have no vote.
    group.pause(2);
    group.pause(3);
    for id in [1, 4, 5] {
        within(LONG, &format!("p{id} has no vote, since p2 has not answered"), || waits(id));
        within(LONG, &format!("p{id} misses p2 and p3"), || {
            let members = get(&group, id, "/v1/status")?["members"].as_array()?.clone();
            let missed = members.iter().filter(|it| it["suspected"] == true);
            (missed.filter(|it| it["id"] == "p2" || it["id"] == "p3").count() == 2).then_some(())
        });
        assert_eq!(waits(id), Some(()), "p{id}");
    }
    // The other side: two of three, who lead.
    [1, 4, 5].into_iter().for_each(|id| group.pause(id));
    [2, 3].into_iter().for_each(|id| group.signal(id, "-CONT"));
    let leader = within(LONG, "p2 or p3 leads", || {
        let leads = |id: &u32| matches!(group.http(*id, "GET", "/leader", ""), Some((200, _)));
        [2, 3].into_iter().find(leads)
    });
    // Healed: the same, and both lists are named.
    [1, 4, 5].into_iter().for_each(|id| group.signal(id, "-CONT"));
    for id in [1, 4, 5] {
        within(LONG, &format!("p{id} says that the lists differ"), || {
            let differing = get(&group, id, "/v1/status")?["differing"].to_string();
            differing.contains("p1 p2 p3,").then_some(())
        });
        assert_eq!(waits(id), Some(()), "p{id}");
    }
    assert_eq!(group.leaders(), [leader]);
}
