//! Interleaved rounds and what is made of them.

/// Measures every subject once a round, in the order A B, B A, A B, ...; returns the samples of each.
pub fn rounds(count: usize, subjects: &mut [&mut dyn FnMut() -> f64]) -> Vec<Vec<f64>> {
    let mut samples = vec![Vec::with_capacity(count); subjects.len()];
    for round in 0..count {
        let forward = round % 2 == 0;
        for step in 0..subjects.len() {
            let index = if forward {
                step
            } else {
                subjects.len() - 1 - step
            };
            samples[index].push(subjects[index]());
        }
    }
    samples
}

/// Returns the median; NaN of nothing.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Returns how far the samples lie apart: (largest - smallest) / median.
pub fn spread(samples: &[f64]) -> f64 {
    let (low, high) = samples
        .iter()
        .fold((f64::MAX, f64::MIN), |(low, high), &sample| {
            (low.min(sample), high.max(sample))
        });
    (high - low) / median(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn rounds_alternate() {
        let order = RefCell::new(String::new());
        let subject = |name: char| {
            let order = &order;
            move || {
                order.borrow_mut().push(name);
                1.0
            }
        };
        let (mut a, mut b) = (subject('a'), subject('b'));
        let samples = rounds(3, &mut [&mut a, &mut b]);
        assert_eq!(*order.borrow(), "abbaab");
        assert_eq!(samples, vec![vec![1.0; 3]; 2]);
    }

    #[test]
    fn medians_and_spreads() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
        assert_eq!(spread(&[1.0, 2.0, 3.0]), 1.0);
    }
}
