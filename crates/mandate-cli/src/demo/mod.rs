//! `mandate demo`: five real members on this host, and a controller that injects faults.
//!
//! The members are processes of this program (`processes`), the network between them is slow as the wide area is and can
//! be cut (`crate::relay`), and what befalls them comes from keys (`keys`), from buttons on a page (`demo_page`) or from a
//! script (`script`). A simulation would be smoother; that these are processes which one can also see with `ps`, ask
//! with `mandate status` and kill by hand is the point.

use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::interval;

use crate::args::positive_duration;
use crate::exit::Exit;
use crate::node::serve::Door;
use crate::output::{self, Format};
use crate::program_runtime::block_on;

mod controller;
mod demo_page;
mod keys;
mod processes;
mod script;
mod watcher;

use controller::DemoController;
use keys::Keys;
use processes::DemoProcesses;

/// How long the script takes where nobody says.
const LENGTH: Duration = Duration::from_secs(30);

/// How often it is looked whether a member has ended by itself.
const LOOK: Duration = Duration::from_millis(200);

const KEYS: &str = "Keys: 1 to 5 choose a member, l the leader; then k kills, p pauses, c cuts off, r revives, \
                    b makes busy, i makes idle. q ends.";

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Play a script of about this length, and end; without it, and in a terminal, you have the say.
    #[arg(long = "for", value_parser = positive_duration, value_name = "TIME")]
    length: Option<Duration>,
    /// The port of the demo's page; any that is free, unless told otherwise.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

pub(crate) fn run(args: &DemoArgs, format: Format) -> anyhow::Result<Exit> {
    block_on(play(args, format))
}

async fn play(args: &DemoArgs, format: Format) -> anyhow::Result<Exit> {
    let is_interactive = args.length.is_none() && std::io::stdin().is_terminal();
    let (said, lines) = mpsc::unbounded_channel();
    let mut cast = DemoProcesses::prepare(said).await?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let door = Door::open(address, None).await?;
    let page = door.url()?;
    let (ordered, orders) = mpsc::channel(64);
    cast.start_all()?;
    let mut stage = DemoController::new(cast, format);
    tokio::spawn(door.serve(demo_page::router(stage.scene(), ordered.clone())));
    if format == Format::Text {
        output::print(
            "Five real members on this host, with the distances of a small world between them.",
        )?;
        output::print(format!("The page: {page}/  (each member's own is linked there)"))?;
        if is_interactive {
            output::print(KEYS)?;
        }
        output::print("")?;
    }
    stage.tell("five members start")?;
    let ended = if is_interactive {
        let (pressed, keys) = mpsc::unbounded_channel();
        let _terminal = Keys::read(pressed)?;
        perform(&mut stage, lines, orders, keys, std::future::pending()).await
    } else {
        let (_nobody, keys) = mpsc::unbounded_channel();
        let length = args.length.unwrap_or(LENGTH);
        let script = script::play(stage.scene(), ordered, length);
        perform(&mut stage, lines, orders, keys, script).await
    };
    // Whatever happened, nothing is left behind.
    let cleared = stage.clear().await;
    ended?;
    cleared?;
    Ok(Exit::Success)
}

/// Runs until the script is through, or somebody ends it.
async fn perform(
    stage: &mut DemoController,
    mut lines: mpsc::UnboundedReceiver<processes::Line>,
    mut orders: mpsc::Receiver<controller::Order>,
    mut keys: mpsc::UnboundedReceiver<char>,
    script: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let mut look = interval(LOOK);
    let mut script = std::pin::pin!(script);
    loop {
        tokio::select! {
            Some(line) = lines.recv() => stage.hear(&line)?,
            Some(order) = orders.recv() => stage.obey(order).await?,
            Some(key) = keys.recv() => match stage.press(key) {
                controller::Pressed::Nothing => {}
                controller::Pressed::Order(order) => stage.obey(order).await?,
                controller::Pressed::End => return Ok(()),
            },
            _ = look.tick() => stage.look()?,
            played = &mut script => return played,
            _ = interrupted.recv() => return Ok(()),
            _ = terminated.recv() => return Ok(()),
            _ = hung_up.recv() => return Ok(()),
        }
    }
}
