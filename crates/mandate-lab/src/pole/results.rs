//! What was measured, and which of the paper's findings hold in it.

use super::crash::{ByOracle, Latencies, Ran};
use super::deployment::{Deployment, FIRST, Shares};
use super::figures::{Figure, TUD_CERN};
use super::recovery::Recovered;

/// Everything that was run.
#[derive(Clone, Debug, Default)]
pub struct PoleResults {
    /// Which figures were asked for.
    pub figures: Vec<Figure>,
    /// Crashes.
    pub crashes: Vec<Ran>,
    /// Each leader of a deployment, timed.
    pub leaders: Vec<(Deployment, Latencies)>,
    /// Recoveries.
    pub recoveries: Vec<Recovered>,
    /// What could not be run, and why.
    pub failures: Vec<String>,
}

/// Whether a measured latency is what arithmetic says: to within 10 %, or 3 ms.
pub fn fits(measured_ms: f64, arithmetic_ms: f64) -> bool {
    (measured_ms - arithmetic_ms).abs() <= (arithmetic_ms * 0.1).max(3.0)
}

/// A finding of the paper, or a claim of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What is said.
    pub claim: &'static str,
    /// Whether it holds here; `None` where what it speaks of did not come about.
    pub holds: Option<bool>,
    /// By which figures.
    pub figures: String,
}

impl PoleResults {
    /// Runs of a case.
    pub fn runs<'a>(
        &'a self,
        deployment: &'a Deployment,
        shares: &'a Shares,
        oracle: ByOracle,
    ) -> impl Iterator<Item = &'a Ran> {
        self.crashes.iter().filter(move |ran| {
            let case = &ran.case;
            case.deployment == *deployment && case.shares == *shares && case.oracle == oracle
        })
    }

    /// A figure of runs of a case, in the mean; `None` if there were none.
    pub fn mean(
        &self,
        deployment: &Deployment,
        shares: &Shares,
        oracle: ByOracle,
        figure: impl Fn(&Ran) -> f64,
    ) -> Option<f64> {
        let figures: Vec<_> = self.runs(deployment, shares, oracle).map(figure).collect();
        (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
    }

    /// Latencies under a leader of a deployment with even requests, in whatever way it came to lead.
    pub fn under(&self, deployment: &Deployment, leader: u32) -> Vec<&Latencies> {
        let even = Shares::even(deployment.centres.len());
        let elected = self.crashes.iter().filter(|ran| {
            ran.case.deployment == *deployment && ran.case.shares == even && ran.elected == leader
        });
        let moved = self.leaders.iter().filter(|(of, it)| of == deployment && it.leader == leader);
        elected.map(|ran| &ran.after).chain(moved.map(|(_, it)| it)).collect()
    }

    /// A figure of those, in the mean; `None` if there are none.
    pub fn mean_under(
        &self,
        deployment: &Deployment,
        leader: u32,
        figure: impl Fn(&Latencies) -> f64,
    ) -> Option<f64> {
        let under = self.under(deployment, leader);
        let sum: f64 = under.iter().map(|it| figure(it)).sum();
        (!under.is_empty()).then(|| sum / under.len() as f64)
    }

    /// Recoveries of these.
    pub fn recovered(
        &self,
        deployment: &Deployment,
        outdated: &[u32],
        oracle: ByOracle,
        interim: bool,
    ) -> Vec<&Recovered> {
        let is_one = |it: &&Recovered| {
            let case = &it.case;
            (&case.deployment, case.outdated.as_slice()) == (deployment, outdated)
                && (case.oracle, case.interim) == (oracle, interim)
        };
        self.recoveries.iter().filter(is_one).collect()
    }

    /// Findings, as far as what was run can tell.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut say = |claim, found: Option<(bool, String)>| {
            if let Some((holds, figures)) = found {
                findings.push(Finding { claim, holds: Some(holds), figures });
            }
        };
        say("every oracle elects whom the paper says", self.elections());
        say("latencies are those of arithmetic, to within 10 % or 3 ms", self.arithmetic());
        say(
            "4.2: with two data centres any oracle elects an equally fast leader: about 10 ms before the crash of p5, \
             about 30 after",
            self.two_are_equal(),
        );
        say(
            "4.2: history fails to elect the fastest leader of three data centres",
            self.history_fails(),
        );
        say(
            "4.2: worst-case minimises both worst-case and mean latency, with about 20 % less than consensus may give",
            self.worst_is_faster(),
        );
        say(
            "4.3: with two data centres request and latency elect the fastest leader; all others take twice as long \
             where all requests arrive at the other one",
            self.aware_halve(),
        );
        say(
            "4.3: with three, request does not elect the fastest: Deployment 2, all requests at D3",
            self.request_fails(),
        );
        say(
            "4.3 (1): oracles that know nothing of requests elect arbitrarily slow leaders: rotating more than 7 times \
             slower than latency, Deployment 1, p = 0",
            self.times(1, Shares::at(2, 0.0, 3), ByOracle::Rotating, 7.0),
        );
        say(
            "arithmetic behind 4.3 (1): under p4, which consensus elected in the paper, twice as slow as latency, \
             Deployment 3, p = 1",
            self.consensus_is_slow(),
        );
        say(
            "arithmetic behind 4.3 (2): under p4, which consensus elected in the paper, about 20 ms more than the least \
             worst case in Deployment 1",
            self.consensus_fails_worst(),
        );
        say(
            "4.3 (3): worst-case gives about 10 ms more mean latency than latency, Deployment 1, p = 1",
            self.more(1, Shares::at(2, 1.0, 3), (5.0, 20.0)),
        );
        say(
            "4.3 (3): and more than 50 ms more, Deployment 3, p = 1",
            self.more(3, Shares::at(1, 1.0, 3), (50.0, f64::INFINITY)),
        );
        say(
            "4.3 (4): latency does not give the least worst case: 30 to 60 ms more than worst-case, as p grows",
            self.latency_fails_worst(),
        );
        say("4.4: history elects a server that is up to date", self.history_looks());
        say(
            "4.4: electing an up-to-date server, recovery stays flat (8a, history)",
            self.history_is_flat(),
        );
        say(
            "4.4: electing an outdated one, it grows with the snapshot, and the more the longer the round trip (8a)",
            self.outdated_grows(),
        );
        say(
            "beyond: with an interim the service serves after the same time whatever the winner lacks (8a)",
            self.interim_is_flat(),
        );
        say(
            "4.4: of equal histories, the leader nearer to the outdated servers recovers faster, and history cannot \
             tell (8b)",
            self.nearer_is_faster(),
        );
        say(
            "open in the paper: an interim has the recovery of history, to within half or 100 ms, and the steady state of \
             the best leader",
            self.interim_has_both(),
        );
        findings.extend(self.consensus_substituted());
        findings
    }

    fn elections(&self) -> Option<(bool, String)> {
        let is_right = |ran: &Ran| {
            let expected = ran.case.oracle.elects(&ran.case.deployment, &ran.case.shares)?;
            Some(expected.contains(&ran.elected))
        };
        let judged: Vec<bool> = self.crashes.iter().filter_map(is_right).collect();
        let (count, all) = (judged.iter().filter(|right| **right).count(), judged.len());
        let by_history = self.crashes.len() - all;
        let text = format!(
            "{count} of {all} elections; {by_history} by history, of equal logs, can be anyone's"
        );
        (all > 0).then_some((count == all, text))
    }

    fn arithmetic(&self) -> Option<(bool, String)> {
        let runs = self.crashes.iter().flat_map(|ran| [&ran.before, &ran.after]);
        let all = runs.chain(self.leaders.iter().map(|(_, it)| it));
        let pairs: Vec<(f64, f64)> = all
            .flat_map(|it| {
                let at = it.at_ms.iter().copied().zip(it.predicted.at_ms.iter().copied());
                at.chain([(it.mean_ms, it.predicted.mean_ms)]).collect::<Vec<_>>()
            })
            .collect();
        let fitting =
            pairs.iter().filter(|(measured, arithmetic)| fits(*measured, *arithmetic)).count();
        let worst =
            pairs.iter().map(|(measured, arithmetic)| measured - arithmetic).fold(0.0, f64::max);
        (!pairs.is_empty()).then(|| {
            let text =
                format!("{fitting} of {} means; the most is {worst:.1} ms above", pairs.len());
            (fitting == pairs.len(), text)
        })
    }

    fn two_are_equal(&self) -> Option<(bool, String)> {
        let (two, even) = (Deployment::two(TUD_CERN), Shares::even(2));
        let of = |oracle| {
            let before = self.mean(&two, &even, oracle, |ran| ran.before.mean_ms)?;
            Some((before, self.mean(&two, &even, oracle, |ran| ran.after.mean_ms)?))
        };
        let (history, rotating) = (of(ByOracle::History)?, of(ByOracle::Rotating)?);
        let fit = [history, rotating]
            .iter()
            .all(|(before, after)| fits(*before, 10.4) && fits(*after, 31.1));
        let text = format!(
            "history {:.1} then {:.1}, rotating {:.1} then {:.1}",
            history.0, history.1, rotating.0, rotating.1
        );
        Some((fit, text))
    }

    fn history_fails(&self) -> Option<(bool, String)> {
        let (one, even) = (Deployment::numbered(1), Shares::even(3));
        let history = self.mean(&one, &even, ByOracle::History, |ran| ran.after.mean_ms)?;
        let best = self.mean(&one, &even, ByOracle::Latency, |ran| ran.after.mean_ms)?;
        Some((history > best * 1.1, format!("Deployment 1: {history:.1} against {best:.1} ms")))
    }

    fn worst_is_faster(&self) -> Option<(bool, String)> {
        let (one, even) = (Deployment::numbered(1), Shares::even(3));
        let by = |figure: fn(&Latencies) -> f64| {
            let worst = self.mean(&one, &even, ByOracle::Worst, |ran| figure(&ran.after))?;
            Some((worst, self.mean_under(&one, 4, figure)?))
        };
        let ((mean, slower), (worst, higher)) = (by(|it| it.mean_ms)?, by(Latencies::worst_ms)?);
        let holds = mean < slower * 0.87 && worst < higher;
        let text = format!(
            "mean {mean:.1} against {slower:.1} ms (p4), worst {worst:.1} against {higher:.1}"
        );
        Some((holds, text))
    }

    fn aware_halve(&self) -> Option<(bool, String)> {
        let (two, all_at_d2) = (Deployment::two(TUD_CERN), Shares::at(1, 1.0, 2));
        let of = |oracle| self.mean(&two, &all_at_d2, oracle, |ran| ran.after.mean_ms);
        let (request, latency) = (of(ByOracle::Requests)?, of(ByOracle::Latency)?);
        let rotating = of(ByOracle::Rotating)?;
        let holds = [request, latency].iter().all(|ms| *ms < rotating * 0.6);
        let text = format!(
            "all at D2: request {request:.1}, latency {latency:.1}, rotating {rotating:.1} ms"
        );
        Some((holds, text))
    }

    fn request_fails(&self) -> Option<(bool, String)> {
        let (two, all_at_d3) = (Deployment::numbered(2), Shares::at(2, 1.0, 3));
        let of = |oracle| self.mean(&two, &all_at_d3, oracle, |ran| ran.after.mean_ms);
        let (request, latency) = (of(ByOracle::Requests)?, of(ByOracle::Latency)?);
        Some((request > latency + 8.0, format!("request {request:.1}, latency {latency:.1} ms")))
    }

    fn times(
        &self,
        number: u8,
        shares: Shares,
        oracle: ByOracle,
        times: f64,
    ) -> Option<(bool, String)> {
        let deployment = Deployment::numbered(number);
        let slow = self.mean(&deployment, &shares, oracle, |ran| ran.after.mean_ms)?;
        let fast = self.mean(&deployment, &shares, ByOracle::Latency, |ran| ran.after.mean_ms)?;
        let text = format!("{slow:.1} against {fast:.1} ms: {:.1} times", slow / fast);
        Some((slow >= fast * times, text))
    }

    fn consensus_is_slow(&self) -> Option<(bool, String)> {
        let (three, at_d2) = (Deployment::numbered(3), Shares::at(1, 1.0, 3));
        let fast = self.mean(&three, &at_d2, ByOracle::Latency, |ran| ran.after.mean_ms)?;
        // Any member with an equal consensus latency may be elected; the paper had p4.
        let p4 = [ByOracle::Consensus, ByOracle::History];
        let of = |oracle| self.runs(&three, &at_d2, oracle).filter(|ran| ran.elected == 4);
        let slow = p4.into_iter().flat_map(of).map(|ran| ran.after.mean_ms).next()?;
        let text = format!("p4 {slow:.1} against {fast:.1} ms: {:.1} times", slow / fast);
        Some((slow > fast * 1.7, text))
    }

    fn consensus_fails_worst(&self) -> Option<(bool, String)> {
        let one = Deployment::numbered(1);
        let p4 = self.mean_under(&one, 4, Latencies::worst_ms)?;
        let best =
            self.mean(&one, &Shares::even(3), ByOracle::Worst, |ran| ran.after.worst_ms())?;
        Some((p4 > best + 15.0, format!("p4 {p4:.1}, worst-case {best:.1} ms")))
    }

    fn more(&self, number: u8, shares: Shares, within: (f64, f64)) -> Option<(bool, String)> {
        let deployment = Deployment::numbered(number);
        let worst = self.mean(&deployment, &shares, ByOracle::Worst, |ran| ran.after.mean_ms)?;
        let latency =
            self.mean(&deployment, &shares, ByOracle::Latency, |ran| ran.after.mean_ms)?;
        let more = worst - latency;
        Some((more > within.0 && more < within.1, format!("{worst:.1} against {latency:.1} ms")))
    }

    fn latency_fails_worst(&self) -> Option<(bool, String)> {
        let of = |number, shares: &Shares| {
            let deployment = Deployment::numbered(number);
            let by = |oracle| self.mean(&deployment, shares, oracle, |ran| ran.after.worst_ms());
            Some(by(ByOracle::Latency)? - by(ByOracle::Worst)?)
        };
        let one = of(1, &Shares::at(2, 1.0, 3))?;
        let three = of(3, &Shares::at(1, 1.0, 3))?;
        let text = format!("p = 1: {one:.1} ms more in Deployment 1, {three:.1} in Deployment 3");
        let is_as_printed = |ms: &f64| (30.0..=60.0).contains(ms);
        Some(([one, three].iter().all(is_as_printed), text))
    }

    /// What the paper says of consensus is what it says of p4, one of several leaders with the same consensus latency. Where
    /// another was elected, that was not observed.
    fn consensus_substituted(&self) -> Vec<Finding> {
        let cases = [
            (
                "4.3 (1): consensus about twice as slow as latency, Deployment 3, p = 1",
                3,
                Shares::at(1, 1.0, 3),
            ),
            (
                "4.3 (2): consensus fails to elect the least worst case, Deployment 1, even requests",
                1,
                Shares::even(3),
            ),
        ];
        let mut findings = Vec::new();
        for (claim, number, shares) in cases {
            let deployment = Deployment::numbered(number);
            let elected: Vec<u32> = self
                .runs(&deployment, &shares, ByOracle::Consensus)
                .map(|ran| ran.elected)
                .collect();
            if elected.is_empty() {
                continue;
            }
            let under_p4 = elected.iter().filter(|id| **id == 4).count();
            let figures = format!("consensus elected p4 in {under_p4} of {} runs", elected.len());
            let holds = (under_p4 == elected.len()).then_some(true);
            findings.push(Finding { claim, holds, figures });
        }
        findings
    }

    fn history_looks(&self) -> Option<(bool, String)> {
        let by_history =
            |it: &&Recovered| it.case.oracle == ByOracle::History && it.case.megabytes > 0;
        let all: Vec<_> = self.recoveries.iter().filter(by_history).collect();
        let right = all.iter().filter(|it| !it.case.outdated.contains(&it.elected)).count();
        let with_p4 = all.iter().filter(|it| it.case.outdated.contains(&4)).count();
        (!all.is_empty()).then(|| {
            let text = format!(
                "{right} of {} elections, in {with_p4} of which p4 was outdated",
                all.len()
            );
            (right == all.len(), text)
        })
    }

    /// By size, the smallest first: a figure of figure 8a's recoveries over a round trip.
    fn by_size(
        &self,
        round_trip: f64,
        oracle: ByOracle,
        interim: bool,
        figure: fn(&Recovered) -> Option<f64>,
    ) -> Option<Vec<f64>> {
        let deployment = Deployment::two(round_trip);
        let mut found = self.recovered(&deployment, &[1], oracle, interim);
        found.sort_by_key(|it| it.case.megabytes);
        found.into_iter().map(figure).collect()
    }

    /// Round trips of two data centres between which there were recoveries.
    pub fn round_trips(&self) -> Vec<f64> {
        let mut known: Vec<f64> = Vec::new();
        for it in self.recoveries.iter().filter(|it| it.case.deployment.centres.len() == 2) {
            let ms = it.case.deployment.round_trip_ms(1, FIRST);
            if !known.contains(&ms) {
                known.push(ms);
            }
        }
        known
    }

    fn flat(&self, oracle: ByOracle) -> Option<(bool, String)> {
        let mut all = Vec::new();
        for round_trip in self.round_trips() {
            let times = self.by_size(round_trip, oracle, true, Recovered::service_recovery_ms);
            let Some(times) = times else {
                let text = format!(
                    "{round_trip} ms: not measured, a write was served before a leader was seen"
                );
                return Some((false, text));
            };
            let (first, last) = (*times.first()?, times.iter().copied().fold(0.0, f64::max));
            all.push((round_trip, first, last));
        }
        // Flat: whatever is lacking, no recovery takes longer than without it by more than half, or by two round trips and
        // the time between two looks.
        let holds = all.iter().all(|(round_trip, first, last)| {
            last - first <= (first * 0.5).max(2.0 * round_trip + 50.0)
        });
        let each = |(round_trip, first, last): &(f64, f64, f64)| {
            format!("{round_trip} ms: {first:.0} to {last:.0} ms")
        };
        (!all.is_empty()).then(|| (holds, all.iter().map(each).collect::<Vec<_>>().join("; ")))
    }

    fn history_is_flat(&self) -> Option<(bool, String)> {
        self.flat(ByOracle::History)
    }

    fn interim_is_flat(&self) -> Option<(bool, String)> {
        self.flat(ByOracle::Preference)
    }

    fn outdated_grows(&self) -> Option<(bool, String)> {
        let mut grown = Vec::new();
        for round_trip in self.round_trips() {
            let times = self.by_size(
                round_trip,
                ByOracle::Preference,
                true,
                Recovered::leader_recovery_ms,
            )?;
            grown.push((round_trip, *times.first()?, *times.last()?));
        }
        let by_size = grown.iter().all(|(_, first, last)| last > first);
        let by_distance = grown.windows(2).all(|pair| pair[1].2 > pair[0].2);
        let each = |(round_trip, first, last): &(f64, f64, f64)| {
            format!("{round_trip} ms: {first:.0} to {last:.0} ms")
        };
        let text = grown.iter().map(each).collect::<Vec<_>>().join("; ");
        (!grown.is_empty()).then_some((by_size && by_distance, text))
    }

    fn nearer_is_faster(&self) -> Option<(bool, String)> {
        let of = |oracle| {
            let deployment = Deployment::of_figure_8b();
            let found = self.recovered(&deployment, &[2, 3], oracle, true);
            let largest = found.into_iter().max_by_key(|it| it.case.megabytes)?;
            Some((largest.elected, largest.service_recovery_ms()?))
        };
        let ((far, slow), (near, fast)) = (of(ByOracle::History)?, of(ByOracle::Rotating)?);
        // Of equal histories the highest id wins, p4, unless what is under way tells them apart.
        let text = format!("p{near} {fast:.0} ms, p{far} {slow:.0} ms");
        (near != far).then_some((near == 1 && fast < slow, text))
    }

    fn interim_has_both(&self) -> Option<(bool, String)> {
        let of = |oracle, interim| {
            let deployment = Deployment::numbered(1);
            let found = self.recovered(&deployment, &[1], oracle, interim);
            let largest = found.into_iter().max_by_key(|it| it.case.megabytes)?;
            Some((largest.service_recovery_ms()?, largest.steady_ms))
        };
        let history = of(ByOracle::History, true)?;
        let direct = of(ByOracle::Preference, false)?;
        let both = of(ByOracle::Preference, true)?;
        let as_history = both.0 <= (history.0 * 1.5).max(history.0 + 100.0);
        let holds = both.0 < direct.0 && as_history && both.1 < history.1 * 0.8;
        let text = format!(
            "recovery and steady state: history {:.0} and {:.1} ms, best directly {:.0} and {:.1}, with an interim {:.0} \
             and {:.1}",
            history.0, history.1, direct.0, direct.1, both.0, both.1
        );
        Some((holds, text))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::crash::CrashCase;
    use super::super::deployment::Predicted;
    use super::super::recovery::tests::{case, recovered};
    use super::*;

    fn latencies(leader: u32, centres: usize, mean_ms: f64, worst_ms: f64) -> Latencies {
        let at_ms = vec![worst_ms; centres];
        let predicted =
            Predicted { at_ms: at_ms.clone(), mean_ms, worst_ms, consensus_ms: mean_ms };
        Latencies { leader, predicted, at_ms, mean_ms }
    }

    /// A crash after which this one was elected, with these latencies.
    pub(in crate::pole) fn ran(
        deployment: Deployment,
        shares: Shares,
        oracle: ByOracle,
        elected: u32,
        mean_ms: f64,
        worst_ms: f64,
    ) -> Ran {
        let centres = deployment.centres.len();
        Ran {
            case: CrashCase { deployment, shares, oracle },
            elected,
            elected_after_ms: 100.0,
            before: latencies(FIRST, centres, mean_ms, worst_ms),
            after: latencies(elected, centres, mean_ms, worst_ms),
            course: vec![(0.0, 0, mean_ms)],
        }
    }

    fn results(recoveries: Vec<Recovered>, crashes: Vec<Ran>) -> PoleResults {
        PoleResults { recoveries, crashes, ..PoleResults::default() }
    }

    /// Recoveries of figure 8a by history that took so long after the election, by size.
    fn by_history(times: &[(u32, f64)]) -> PoleResults {
        let each = |(megabytes, ms): &(u32, f64)| {
            recovered(case(ByOracle::History, *megabytes, true), 4, 100.0, 100.0 + ms, 150.0)
        };
        results(times.iter().map(each).collect(), Vec::new())
    }

    #[test]
    fn recovery_is_flat_if_nothing_that_is_lacking_makes_it_longer() {
        let flat = |times: &[(u32, f64)]| by_history(times).history_is_flat().unwrap().0;
        assert!(flat(&[(0, 100.0), (100, 110.0), (250, 90.0)]));
        assert!(!flat(&[(0, 100.0), (100, 400.0), (250, 90.0)]), "the one between counts");
        assert!(flat(&[(0, 1000.0), (250, 1400.0)]), "less than half more");
        assert!(!flat(&[(0, 1000.0), (250, 1600.0)]));
        // Served before anyone was seen to be elected: it was not measured, and does not count as flat.
        assert!(!flat(&[(0, 100.0), (250, -5.0)]));
        assert!(PoleResults::default().history_is_flat().is_none());
    }

    #[test]
    fn a_range_that_the_paper_prints_has_two_ends() {
        let of = |one: f64, three: f64| {
            let case = |number, shares: Shares, oracle, worst_ms| {
                ran(Deployment::numbered(number), shares, oracle, 2, 10.0, worst_ms)
            };
            let (p1, p3) = (Shares::at(2, 1.0, 3), Shares::at(1, 1.0, 3));
            let crashes = vec![
                case(1, p1.clone(), ByOracle::Latency, 100.0 + one),
                case(1, p1, ByOracle::Worst, 100.0),
                case(3, p3.clone(), ByOracle::Latency, 100.0 + three),
                case(3, p3, ByOracle::Worst, 100.0),
            ];
            results(Vec::new(), crashes).latency_fails_worst().unwrap().0
        };
        assert!(of(30.0, 59.0));
        assert!(!of(66.2, 40.0), "more than is printed");
        assert!(!of(40.0, 22.4), "less than is printed");
    }

    #[test]
    fn what_is_said_of_consensus_is_observed_only_where_consensus_elected_p4() {
        let found = |elected: &[u32]| {
            let one = |id: &u32| {
                let even = Shares::even(3);
                ran(Deployment::numbered(1), even, ByOracle::Consensus, *id, 10.0, 20.0)
            };
            results(Vec::new(), elected.iter().map(one).collect()).consensus_substituted()
        };
        assert!(found(&[]).is_empty());
        assert_eq!(found(&[4, 4])[0].holds, Some(true));
        assert_eq!(found(&[4, 2])[0].holds, None);
        assert!(found(&[2])[0].figures.contains("p4 in 0 of 1 runs"));
    }

    #[test]
    fn an_interim_has_the_recovery_of_history_only_if_it_takes_about_as_long() {
        let of = |ms: f64| {
            let one = |oracle, interim, served_ms: f64, steady_ms| {
                let deployment = Deployment::numbered(1);
                let case = super::super::recovery::RecoveryCase {
                    deployment,
                    ..case(oracle, 250, interim)
                };
                Recovered { steady_ms, ..recovered(case, 1, 0.0, served_ms, served_ms) }
            };
            let recoveries = vec![
                one(ByOracle::History, true, 105.0, 89.7),
                one(ByOracle::Preference, false, 21_868.0, 55.6),
                one(ByOracle::Preference, true, ms, 55.3),
            ];
            results(recoveries, Vec::new()).interim_has_both().unwrap().0
        };
        assert!(of(200.0));
        assert!(!of(417.0), "four times as long");
    }

    #[test]
    fn elections_by_history_of_equal_logs_are_not_counted() {
        let crash = |oracle, elected| {
            ran(Deployment::numbered(1), Shares::even(3), oracle, elected, 10.0, 20.0)
        };
        let judged = |crashes| results(Vec::new(), crashes).elections();
        assert_eq!(judged(vec![crash(ByOracle::History, 4)]), None);
        let (holds, text) =
            judged(vec![crash(ByOracle::History, 4), crash(ByOracle::Rotating, 1)]).unwrap();
        assert!(holds && text.starts_with("1 of 1 elections"), "{text}");
        let (holds, _) = judged(vec![crash(ByOracle::Rotating, 2)]).unwrap();
        assert!(!holds);
    }
}
