//! The middle and the spread of some numbers, and how certain their median is.

use serde::Serialize;

/// Numbers, by their order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    /// Half of them are below.
    pub(super) median: f64,
    /// A quarter of them is below, and a quarter above.
    pub(super) quartiles: [f64; 2],
    /// The true median, of an endless measurement, lies between these with a probability of 95 %.
    pub(super) certain: [f64; 2],
}

impl Spread {
    /// The spread of these numbers. Without numbers, all values are 0.
    pub(super) fn of(mut numbers: Vec<f64>) -> Self {
        numbers.sort_by(f64::total_cmp);
        let last = numbers.len().saturating_sub(1) as f64;
        let at = |place: f64| {
            let place = place.clamp(0.0, last);
            let (low, high) = (number(&numbers, place.floor()), number(&numbers, place.ceil()));
            low + (high - low) * place.fract()
        };
        // How many numbers of a sample lie below the true median follows a binomial distribution, whatever the
        // distribution of the numbers is.
        let reach = 1.96 * (numbers.len() as f64).sqrt() / 2.0;
        Self {
            median: at(last / 2.0),
            quartiles: [at(last / 4.0), at(last * 3.0 / 4.0)],
            certain: [at((last / 2.0 - reach).floor()), at((last / 2.0 + reach).ceil())],
        }
    }
}

fn number(numbers: &[f64], place: f64) -> f64 {
    numbers.get(place as usize).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_that_of_the_order() {
        let spread = Spread::of((0..=100).rev().map(f64::from).collect());
        assert_eq!((spread.median, spread.quartiles), (50.0, [25.0, 75.0]));
        assert_eq!(spread.certain, [40.0, 60.0]);
        assert_eq!(Spread::of(vec![1.0, 2.0]).median, 1.5);
    }

    #[test]
    fn few_numbers_tell_little() {
        assert_eq!(Spread::of(vec![]).median, 0.0);
        assert_eq!(Spread::of(vec![7.0]), Spread { median: 7.0, quartiles: [7.0; 2], certain: [7.0; 2] });
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]).certain, [1.0, 3.0], "all of them");
    }
}
