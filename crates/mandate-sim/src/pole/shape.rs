//! Who can talk to whom after the storm: everyone, or only so many that one member still exchanges
//! messages with a quorum.

use crate::fault::Fault;
use crate::network::HostIndex;
use crate::random::Random;

/// A connectivity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Everyone with everyone.
    Full,
    /// Each with its neighbours in a row.
    Chain,
    /// Each direction of each link by chance, but one member with a quorum both ways.
    Star,
}

impl Shape {
    /// The shape of a run.
    pub(crate) fn draw(random: &mut Random) -> Self {
        match random.below(10) {
            0..=5 => Shape::Full,
            6 => Shape::Chain,
            _ => Shape::Star,
        }
    }

    /// The cuts that make it, among `size` members of which `up` are up and have a vote.
    pub(crate) fn cuts(self, size: usize, up: &[HostIndex], random: &mut Random) -> Vec<Fault> {
        let mut is_cut = vec![vec![false; size]; size];
        match self {
            Shape::Full => {}
            Shape::Chain => {
                let order = shuffled((0..size).collect(), random);
                for (a, from) in order.iter().enumerate() {
                    for (b, to) in order.iter().enumerate() {
                        is_cut[*from][*to] = a.abs_diff(b) > 1;
                    }
                }
            }
            Shape::Star => {
                let density = random.below(100) as f64 / 100.0;
                for cut in is_cut.iter_mut().flatten() {
                    *cut = random.chance(density);
                }
                let heard = shuffled(up.to_vec(), random);
                if let Some((centre, others)) = heard.split_first() {
                    for other in &others[..(size / 2).min(others.len())] {
                        is_cut[*centre][*other] = false;
                        is_cut[*other][*centre] = false;
                    }
                }
            }
        }
        let pairs = (0..size).flat_map(|from| (0..size).map(move |to| (from, to)));
        pairs
            .filter(|(from, to)| is_cut[*from][*to])
            .map(|(from, to)| Fault::Cut { from, to })
            .collect()
    }
}

/// Whether, with these cuts, one of `centres` exchanges messages with a quorum of `voters`, itself
/// included.
pub(crate) fn has_centre(
    size: usize,
    mut centres: impl Iterator<Item = HostIndex>,
    voters: &[HostIndex],
    cuts: &[Fault],
) -> bool {
    let is_cut = |from: HostIndex, to: HostIndex| cuts.contains(&Fault::Cut { from, to });
    let both = |a: HostIndex, b: HostIndex| a == b || !is_cut(a, b) && !is_cut(b, a);
    let reach = |centre: HostIndex| voters.iter().filter(|other| both(centre, **other)).count();
    centres.any(|centre| reach(centre) > size / 2)
}

fn shuffled(mut hosts: Vec<HostIndex>, random: &mut Random) -> Vec<HostIndex> {
    for last in (1..hosts.len()).rev() {
        hosts.swap(last, random.below(last as u64 + 1) as usize);
    }
    hosts
}
