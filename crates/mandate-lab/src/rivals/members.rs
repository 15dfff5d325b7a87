//! Many members of an election in one process, or one.
//!
//! Members join a few at a time: a storm of joins is not what is measured. A member whose connection ends
//! comes back, as a program would that is restarted by its supervisor.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::io::{self, BufRead};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use mandate_conformance::actor::die_with_parent;
use tokio::sync::{Notify, Semaphore};
use tokio::time::sleep;

use super::member::{Leading, RivalMember, say};

/// How many members join at once.
const JOINING: usize = 16;

/// Before a member whose connection ended comes back.
const COMES_BACK: Duration = Duration::from_millis(200);

/// Why a member could not go on.
pub type MemberError = Box<dyn Error + Send + Sync>;

/// A way to elect, as a member takes part in it.
pub trait Contender: Send + Sync + 'static {
    /// Takes part, until its connection ends. What it finds out it tells its seat.
    fn contend(
        &self,
        seat: &mut RivalMember,
    ) -> impl Future<Output = Result<Infallible, MemberError>> + Send;
}

/// Runs these members until the input ends. Takes standard input and output for itself: an order is a line
/// `resign M`.
pub async fn run(contender: impl Contender, members: Range<u64>) -> io::Result<()> {
    die_with_parent()?;
    let contender = Arc::new(contender);
    let leading = Arc::new(Leading::default());
    leading.clone().act();
    let entrance = Arc::new(Semaphore::new(JOINING));
    let mut bells = BTreeMap::new();
    for member in members {
        let resign = Arc::new(Notify::new());
        bells.insert(member, resign.clone());
        let seat = RivalMember { member, leading: leading.clone(), resign, entrance: None };
        tokio::spawn(sit(contender.clone(), seat, entrance.clone()));
    }
    tokio::task::spawn_blocking(move || obey(&bells)).await?;
    Ok(())
}

async fn sit(contender: Arc<impl Contender>, mut seat: RivalMember, entrance: Arc<Semaphore>) {
    loop {
        seat.entrance = entrance.clone().acquire_owned().await.ok();
        let Err(why) = contender.contend(&mut seat).await;
        seat.follow();
        seat.entrance = None;
        say(format_args!("lost {} {}", seat.member, why.to_string().replace('\n', " ")));
        sleep(COMES_BACK).await;
    }
}

fn obey(bells: &BTreeMap<u64, Arc<Notify>>) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let member = line.strip_prefix("resign ").and_then(|member| member.parse().ok());
        if let Some(bell) = member.and_then(|member: u64| bells.get(&member)) {
            bell.notify_one();
        }
    }
}
