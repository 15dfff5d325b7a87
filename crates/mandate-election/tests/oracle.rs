//! An oracle of the application's own, in a group of the peer engine.

mod group;

use std::sync::mpsc;
use std::time::Duration;

use mandate::{Error, Figures, Mandate, Member, Score, Start, View};
use tokio::time::sleep;

async fn start(files: &[String]) -> Vec<Member> {
    let mut members = Vec::new();
    for file in files {
        let builder = mandate::peer::from_file(file).unwrap().with_start(Start::New);
        members.push(builder.start().await.unwrap());
    }
    members
}

#[tokio::test(flavor = "multi_thread")]
async fn the_best_by_the_applications_score_leads() {
    let directory = tempfile::tempdir().unwrap();
    let oracle = "[election]\noracle = 'application, application'\n";
    let members = start(&group::write(directory.path(), oracle)).await;
    // The first component decides, and of equals the second: not ids, which would make p3 lead.
    for (member, score) in members.iter().zip([[1.0, 1.0], [1.0, 2.0], [0.0, 9.0]]) {
        let scorer = move |view: &View| {
            assert_eq!(view.members.len(), 3);
            Score::new(&score).ok()
        };
        member.score_by(Duration::from_millis(20), scorer).unwrap();
    }
    for (member, score) in members.iter().zip([[1.0, 1.0], [1.0, 2.0], [0.0, 9.0]]) {
        let is_scored = async {
            loop {
                let status = member.election().status().await;
                let candidacy = status.and_then(|status| status.candidacy?.ok());
                if candidacy.is_some_and(|it| it.score.components() == score) {
                    return;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), is_scored).await.expect("it has its score");
    }
    let best_leads = async {
        while !leads(&members[1]) {
            for other in members.iter().filter(|other| leads(other)) {
                other.election().resign().await;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), best_leads).await.expect("p2 leads");
    for member in members {
        member.shutdown().await;
    }
}

/// The scorer used to write back the figures that it had been shown.
#[tokio::test(flavor = "multi_thread")]
async fn figures_that_are_set_while_a_score_is_computed_stay() {
    let directory = tempfile::tempdir().unwrap();
    let oracle = "[election]\noracle = 'application'\n";
    let members = start(&group::write(directory.path(), oracle)[..1]).await;
    let ((begins, begun), (goes_on, may_go_on)) = (mpsc::channel(), mpsc::channel::<()>());
    let scorer = move |_: &View| {
        begins.send(()).ok()?;
        may_go_on.recv().ok()?;
        Score::new(&[1.0]).ok()
    };
    members[0].score_by(Duration::from_millis(1), scorer).unwrap();
    for position in (1..=3).map(Some) {
        begun.recv().unwrap();
        let figures = Figures { history: position, ..Figures::default() };
        members[0].election().set_figures(figures);
        goes_on.send(()).unwrap();
        begun.recv().unwrap();
        let is_known = async {
            // One that does not get to answer within a second is asked again.
            let status = async || members[0].election().status().await;
            while status().await.is_none_or(|status| status.view.unwrap().history != position) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), is_known)
            .await
            .expect("it stays as it was set");
        goes_on.send(()).unwrap();
    }
    drop(goes_on);
    members[0].shutdown().await;
}

fn leads(member: &Member) -> bool {
    member.election().state().borrow().mandate().is_some_and(Mandate::check)
}

#[tokio::test]
async fn where_no_application_is_asked_that_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let members = start(&group::write(directory.path(), "")[..1]).await;
    let refused = members[0].score_by(Duration::from_secs(1), |_: &View| None).unwrap_err();
    assert!(matches!(&refused, Error::NotAsked(Some(oracle)) if oracle == "constant"), "{refused}");
}
