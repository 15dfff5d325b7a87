//! What happens to roles on a ledger, in words.

use mandate_proto::neli::{Event, RoleLoss, Undertaking};

/// Why roles are not led any more, for metrics and programs.
pub(crate) fn loss_name(loss: RoleLoss) -> &'static str {
    match loss {
        RoleLoss::Lapsed => "lapsed",
        RoleLoss::Revoked => "revoked",
        RoleLoss::Lost => "lost",
        RoleLoss::Fenced => "fenced",
        RoleLoss::Left => "left",
    }
}

/// The same for people.
fn because(loss: RoleLoss) -> &'static str {
    match loss {
        RoleLoss::Lapsed => "nothing proved in time that it may be led",
        RoleLoss::Revoked => "the coordinator wants it back",
        RoleLoss::Lost => "the coordinator had given this member up for dead",
        RoleLoss::Fenced => "the coordinator refused to renew it: it is another's",
        RoleLoss::Left => "this member resigned or left",
    }
}

/// Why a term began: on a ledger, for one reason.
pub(crate) const ASSIGNED: &str = "the coordinator assigned the partition to this member";

/// An event.
pub(crate) fn event_text(event: &Event) -> String {
    match event {
        Event::Acquired { partition, term: Some(term) } => {
            format!("LEADING {partition} in term {term}")
        }
        Event::Acquired { partition, term: None } => format!("LEADING {partition}"),
        Event::Published { partition, term, value } => {
            format!("the claim of {partition} carries, with term {term}: {value}")
        }
        Event::Ended { partition, loss, .. } => {
            format!("{partition} is not led any more: {}", because(*loss))
        }
        Event::DrainOverran { partition } => {
            format!("work on {partition} took longer than is allowed, and it was released")
        }
        Event::Dry { partition } => format!(
            "{partition} is dry: nothing came for a threshold and a session by which it could be led"
        ),
        Event::BarrierStuck { .. } => {
            "the barrier is stuck: nothing was assigned for longer than any member may hold that up"
                .into()
        }
        Event::WentBack { partition, from, to } => format!(
            "the offsets of {partition} went back, from term {from} to {to}: was the topic made anew? It is not led here \
             under a lower term"
        ),
        Event::Failed { undertaking, times, unknown } => {
            let what = match undertaking {
                Undertaking::Publishing => "a record",
                Undertaking::Renewing => "a renewal",
                Undertaking::Inspecting => "a look at what the ledger keeps",
            };
            match unknown {
                false => format!("{what} failed ({times} in succession)"),
                true => format!("nobody knows what became of {what} ({times} in succession)"),
            }
        }
        Event::Disagrees { ours, theirs, .. } => format!(
            "another member has {theirs}, and this one {ours}: it does not lead. Give all members the same"
        ),
        Event::Agrees => "no member has another layout any more".into(),
        Event::Resized { counted, found } => {
            format!("the topic has {found} partitions by now; this member counts {counted}")
        }
        Event::Left => "out of the group".into(),
    }
}
