//! Quartiles of a sample, as box plots show them.

use alloc::vec::Vec;

/// The five numbers of a box plot, the mean, and how many values they stand for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    /// Number of values.
    pub count: usize,
    /// The smallest.
    pub min: f64,
    /// A quarter lies below.
    pub first: f64,
    /// Half lies below.
    pub median: f64,
    /// Three quarters lie below.
    pub third: f64,
    /// The largest.
    pub max: f64,
    /// The average.
    pub mean: f64,
}

impl Quartiles {
    /// Quartiles of `values`, interpolated linearly (type 7 of Hyndman and Fan: the default of R
    /// and NumPy). `None` if there are no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |share: f64| {
            let place = share * last as f64;
            let below = libm::floor(place);
            let (low, high) = (sorted[below as usize], sorted[libm::ceil(place) as usize]);
            low + (high - low) * (place - below)
        };
        Some(Quartiles {
            count: sorted.len(),
            min: sorted[0],
            first: at(0.25),
            median: at(0.5),
            third: at(0.75),
            max: sorted[last],
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
        })
    }
}

impl Quartiles {
    /// The same values in another unit.
    pub fn scaled(self, factor: f64) -> Self {
        Quartiles {
            count: self.count,
            min: self.min * factor,
            first: self.first * factor,
            median: self.median * factor,
            third: self.third * factor,
            max: self.max * factor,
            mean: self.mean * factor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_interpolate_between_values() {
        let quartiles = Quartiles::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(
            (quartiles.min, quartiles.first, quartiles.median, quartiles.third, quartiles.max),
            (1.0, 1.75, 2.5, 3.25, 4.0)
        );
    }

    #[test]
    fn one_value_is_all_its_quartiles_and_no_value_has_none() {
        let one = Quartiles::of([7.0]).unwrap();
        assert_eq!((one.first, one.median, one.third), (7.0, 7.0, 7.0));
        assert_eq!(Quartiles::of([]), None);
    }
}
