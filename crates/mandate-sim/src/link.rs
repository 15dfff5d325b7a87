//! What a link does to messages: delay, loss, repetition, and bursts in which all of it is worse.

use core::time::Duration;

use rand_distr::{Distribution, LogNormal, Pareto};

use crate::random::Random;
use crate::time::SimTime;

/// How long messages take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delay {
    /// Always the same.
    Constant(Duration),
    /// Anything from the first up to the second.
    Uniform(Duration, Duration),
    /// Exponential with this mean.
    Exponential(Duration),
    /// Log-normal, with this mean and this variance in seconds squared: mostly quick, at times
    /// very slow.
    LogNormal {
        /// The mean.
        mean: Duration,
        /// The variance, in seconds squared.
        variance: f64,
    },
    /// At least `min`, with a Pareto tail: the chance to exceed x is `(min / x)^shape`. Below a
    /// shape of 2 the variance is infinite.
    Pareto {
        /// The least delay.
        min: Duration,
        /// How quickly the tail falls.
        shape: f64,
    },
}

/// What a link is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkModel {
    /// How long messages take.
    pub delay: Delay,
    /// No message takes longer: buffers are finite.
    pub max_delay: Duration,
    /// The share of messages that are lost.
    pub loss: f64,
    /// The share that arrive twice.
    pub duplication: f64,
    /// Whether messages cannot overtake each other.
    pub in_order: bool,
    /// Times in which it is worse.
    pub bursts: Option<Bursts>,
}

/// Times in which a link is worse. Lateness and loss are then correlated, which the formulas of
/// failure detectors assume they are not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    /// Mean time from the end of one to the beginning of the next.
    pub every: Duration,
    /// Mean duration.
    pub lasting: Duration,
    /// The share of messages lost meanwhile.
    pub loss: f64,
    /// Added to each message's delay.
    pub delay: Delay,
}

impl LinkModel {
    /// A link that loses nothing and always takes `delay`.
    pub fn perfect(delay: Duration) -> Self {
        LinkModel {
            delay: Delay::Constant(delay),
            max_delay: delay,
            loss: 0.0,
            duplication: 0.0,
            in_order: false,
            bursts: None,
        }
    }
}

/// A link: its model made ready to draw from, and whether it is in a burst.
#[derive(Clone, Debug)]
pub struct Link {
    model: LinkModel,
    delay: Sampler,
    burst_delay: Sampler,
    in_burst: bool,
    turns: SimTime,
    last_arrival: SimTime,
}

/// A [`Delay`] with its constants worked out.
#[derive(Clone, Copy, Debug)]
enum Sampler {
    Constant(Duration),
    Uniform(Duration, Duration),
    Exponential(Duration),
    LogNormal(LogNormal<f64>),
    Pareto(Pareto<f64>),
}

impl Sampler {
    /// # Panics
    ///
    /// If the parameters make no distribution: they are the experimenter's own.
    fn new(delay: Delay) -> Self {
        match delay {
            Delay::Constant(constant) => Sampler::Constant(constant),
            Delay::Uniform(min, max) => Sampler::Uniform(min, max),
            Delay::Exponential(mean) => Sampler::Exponential(mean),
            Delay::LogNormal { mean, variance } => {
                let cv = variance.sqrt() / mean.as_secs_f64();
                let distribution = LogNormal::from_mean_cv(mean.as_secs_f64(), cv);
                Sampler::LogNormal(distribution.expect("mean and variance must be positive"))
            }
            Delay::Pareto { min, shape } => {
                let distribution = Pareto::new(min.as_secs_f64(), shape);
                Sampler::Pareto(distribution.expect("minimum and shape must be positive"))
            }
        }
    }

    fn sample(&self, random: &mut Random, max: Duration) -> Duration {
        // Bounded before the conversion, which would panic on what a tail can reach.
        let bounded = |seconds: f64| Duration::from_secs_f64(seconds.clamp(0.0, 1e6));
        let drawn = match self {
            Sampler::Constant(constant) => *constant,
            Sampler::Uniform(min, max) => random.between(*min, *max),
            Sampler::Exponential(mean) => random.exponential(*mean),
            Sampler::LogNormal(distribution) => bounded(distribution.sample(random)),
            Sampler::Pareto(distribution) => bounded(distribution.sample(random)),
        };
        drawn.min(max)
    }
}

impl Link {
    /// A link as `model` describes it.
    ///
    /// # Panics
    ///
    /// If the model's delays have parameters that make no distribution.
    pub fn new(model: LinkModel) -> Self {
        let burst_delay = model.bursts.map_or(Delay::Constant(Duration::ZERO), |b| b.delay);
        Link {
            model,
            delay: Sampler::new(model.delay),
            burst_delay: Sampler::new(burst_delay),
            in_burst: true,
            turns: SimTime::ZERO,
            last_arrival: SimTime::ZERO,
        }
    }

    /// Sends a message at `now`: when it arrives, and when it arrives again.
    pub fn transmit(&mut self, now: SimTime, random: &mut Random) -> [Option<SimTime>; 2] {
        self.turn(now, random);
        let loss = match self.model.bursts {
            Some(bursts) if self.in_burst => bursts.loss,
            _ => self.model.loss,
        };
        if random.chance(loss) {
            return [None, None];
        }
        let first = self.arrival(now, random);
        let again = random.chance(self.model.duplication).then(|| self.arrival(now, random));
        [Some(first), again]
    }

    fn arrival(&mut self, now: SimTime, random: &mut Random) -> SimTime {
        let mut delay = self.delay.sample(random, self.model.max_delay);
        if self.in_burst && self.model.bursts.is_some() {
            delay += self.burst_delay.sample(random, self.model.max_delay);
        }
        let mut arrival = now + delay.min(self.model.max_delay);
        if self.model.in_order {
            arrival = arrival.max(self.last_arrival);
            self.last_arrival = arrival;
        }
        arrival
    }

    /// Enters and leaves bursts, as often as is due by `now`.
    fn turn(&mut self, now: SimTime, random: &mut Random) {
        let Some(bursts) = self.model.bursts else { return };
        while self.turns <= now {
            self.in_burst = !self.in_burst;
            let mean = if self.in_burst { bursts.lasting } else { bursts.every };
            // At least a microsecond, so that time moves on whatever was drawn.
            let lasts = random.exponential(mean).max(Duration::from_micros(1));
            self.turns = self.turns + lasts;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    const MS: Duration = Duration::from_millis(1);

    /// Mean and variance in milliseconds of what arrives, and the share that does.
    fn measure(model: LinkModel, sends: u64) -> (f64, f64, f64) {
        let mut random = Random::new(7, Stream::Network);
        let mut link = Link::new(model);
        let (mut n, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for i in 0..sends {
            let now = SimTime::ZERO + MS * (10 * i as u32);
            if let [Some(arrival), _] = link.transmit(now, &mut random) {
                let ms = (arrival - now).as_secs_f64() * 1000.0;
                n += 1.0;
                sum += ms;
                squares += ms * ms;
            }
        }
        let mean = sum / n;
        (mean, squares / n - mean * mean, n / sends as f64)
    }

    fn model(delay: Delay) -> LinkModel {
        LinkModel { delay, max_delay: MS * 10_000, ..LinkModel::perfect(MS) }
    }

    #[test]
    fn delays_have_the_mean_and_variance_asked_for() {
        let (mean, variance, _) = measure(model(Delay::Uniform(MS * 10, MS * 20)), 100_000);
        assert!((mean - 15.0).abs() < 0.1 && (variance - 100.0 / 12.0).abs() < 0.2);
        let (mean, variance, _) = measure(model(Delay::Exponential(MS * 5)), 100_000);
        assert!((mean - 5.0).abs() < 0.1 && (variance - 25.0).abs() < 1.0);
        let log_normal = Delay::LogNormal { mean: MS * 5, variance: 25e-6 };
        let (mean, variance, _) = measure(model(log_normal), 100_000);
        assert!((mean - 5.0).abs() < 0.1 && (variance - 25.0).abs() < 2.0, "{mean} {variance}");
    }

    #[test]
    fn a_pareto_tail_is_as_heavy_as_its_shape_says() {
        let mut random = Random::new(3, Stream::Network);
        let mut link = Link::new(model(Delay::Pareto { min: MS, shape: 2.0 }));
        let slow = (0..100_000)
            .filter_map(|_| link.transmit(SimTime::ZERO, &mut random)[0])
            .filter(|arrival| arrival.since_start() > MS * 10)
            .count();
        assert!(
            (900..1100).contains(&slow),
            "one in a hundred takes ten times the minimum: {slow}"
        );
    }

    #[test]
    fn loss_and_duplication_have_the_shares_asked_for() {
        let lossy = LinkModel { loss: 0.1, duplication: 0.2, ..LinkModel::perfect(MS) };
        let (_, _, arrived) = measure(lossy, 100_000);
        assert!((arrived - 0.9).abs() < 0.005);
        let mut random = Random::new(3, Stream::Network);
        let mut link = Link::new(lossy);
        let twice =
            (0..100_000).filter(|_| link.transmit(SimTime::ZERO, &mut random)[1].is_some()).count();
        assert!((17_500..18_500).contains(&twice), "a fifth of nine tenths: {twice}");
    }

    #[test]
    fn bursts_take_the_share_of_time_asked_for() {
        let bursts =
            Bursts { every: MS * 900, lasting: MS * 100, loss: 1.0, delay: Delay::Constant(MS) };
        let (_, _, arrived) =
            measure(LinkModel { bursts: Some(bursts), ..LinkModel::perfect(MS) }, 400_000);
        assert!((arrived - 0.9).abs() < 0.01, "{arrived}");
    }

    #[test]
    fn a_link_in_order_lets_nothing_overtake() {
        let mut random = Random::new(3, Stream::Network);
        let delay = Delay::Exponential(MS * 50);
        let mut link = Link::new(LinkModel { in_order: true, ..model(delay) });
        let mut last = SimTime::ZERO;
        for i in 0..1000 {
            let arrival = link.transmit(SimTime::ZERO + MS * i, &mut random)[0].unwrap();
            assert!(arrival >= last);
            last = arrival;
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_delays_on_every_machine() {
        // Written down: the logarithms and powers behind them must come from one library.
        let delays = [
            (Delay::Exponential(MS * 5), [4_646_560, 12_135_812, 4_533_721]),
            (Delay::LogNormal { mean: MS * 5, variance: 25e-6 }, [7_592_640, 6_682_463, 8_337_205]),
            (Delay::Pareto { min: MS, shape: 1.5 }, [1_074_708, 1_322_450, 1_015_949]),
        ];
        for (delay, expected) in delays {
            let mut random = Random::new(42, Stream::Network);
            let mut link = Link::new(model(delay));
            let drawn = expected.map(|_| link.transmit(SimTime::ZERO, &mut random)[0].unwrap());
            assert_eq!(drawn.map(SimTime::as_nanos), expected, "{delay:?}");
        }
    }
}
