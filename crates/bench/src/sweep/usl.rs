//! Gunther's Universal Scalability Law, `X(N) = λN / (1 + σ(N-1) + κN(N-1))`, fitted to throughput
//! at several cluster sizes.
//!
//! λ is the throughput of one node, σ the share of work that waits for others (contention), κ the cost between nodes
//! (coherency). The fit minimizes least squares of `N / X`, which is linear in the three, weighted by the relative
//! error of each size. If the law does not describe the figures, the result says so.

use serde::{Deserialize, Serialize};

/// With fewer sizes than parameters plus one, a fit proves nothing.
const SIZES_MIN: usize = 4;
/// Above this error at a size, the law does not describe the figures.
const ERROR_MAX: f64 = 0.15;

/// The result of a fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// Whether the law describes these figures.
    pub applies: bool,
    /// The reason, unless `applies`.
    pub why_not: Option<String>,
    /// Cluster sizes that were used.
    pub sizes: Vec<usize>,
    /// Throughput of one node.
    pub lambda: Option<f64>,
    /// Contention.
    pub sigma: Option<f64>,
    /// Coherency.
    pub kappa: Option<f64>,
    /// Largest relative error at a size.
    pub error_max: Option<f64>,
    /// The size with the highest throughput; `None` if it grows without limit.
    pub peak_nodes: Option<f64>,
}

impl Fit {
    /// The throughput according to the law, if it applies.
    pub fn at(&self, nodes: usize) -> Option<f64> {
        let parameters = [self.lambda?, self.sigma?, self.kappa?];
        self.applies.then(|| law(parameters, nodes as f64))
    }
}

/// Fits the law to `(nodes, throughput)`.
pub fn fit(points: &[(usize, f64)]) -> Fit {
    let sizes: Vec<usize> = points.iter().map(|(nodes, _)| *nodes).collect();
    let nothing = Fit {
        applies: false,
        why_not: None,
        sizes,
        lambda: None,
        sigma: None,
        kappa: None,
        error_max: None,
        peak_nodes: None,
    };
    let refuse = |why: String| Fit { why_not: Some(why), ..nothing.clone() };
    if points.len() < SIZES_MIN {
        let sizes = match points.len() {
            0 => "there is no size".to_owned(),
            1 => "one size is too few".to_owned(),
            count => format!("{count} sizes are too few"),
        };
        return refuse(format!("{sizes}; {SIZES_MIN} are needed"));
    }
    if points.iter().any(|(_, rate)| !rate.is_finite() || *rate <= 0.0) {
        return refuse("a size has no throughput".to_owned());
    }
    let solved = solve(points, 3).filter(|[_, _, kappa]| *kappa >= 0.0);
    // Without a cost between nodes this is Amdahl's law, and its two parameters are fitted again.
    let Some(parameters) = solved.or_else(|| solve(points, 2)) else {
        return refuse("the sizes do not determine the parameters".to_owned());
    };
    let [lambda, sigma, kappa] = parameters;
    let error = |(nodes, rate): &(usize, f64)| (law(parameters, *nodes as f64) / rate - 1.0).abs();
    let error_max = points.iter().map(error).fold(0.0, f64::max);
    let why_not = if sigma < 0.0 {
        Some(
            "throughput grows faster than the number of nodes (σ < 0), which the law does not know"
                .to_owned(),
        )
    } else if error_max > ERROR_MAX {
        Some(format!("the best fit misses a size by {:.0} %", error_max * 100.0))
    } else {
        None
    };
    Fit {
        applies: why_not.is_none(),
        why_not,
        lambda: Some(lambda),
        sigma: Some(sigma),
        kappa: Some(kappa),
        error_max: Some(error_max),
        peak_nodes: (kappa > 0.0 && sigma < 1.0).then(|| ((1.0 - sigma) / kappa).sqrt()),
        ..nothing
    }
}

fn law([lambda, sigma, kappa]: [f64; 3], nodes: f64) -> f64 {
    lambda * nodes / (1.0 + sigma * (nodes - 1.0) + kappa * nodes * (nodes - 1.0))
}

/// λ, σ and κ (0 with only two `unknowns`) by weighted least squares.
fn solve(points: &[(usize, f64)], unknowns: usize) -> Option<[f64; 3]> {
    let mut matrix = [[0.0; 4]; 3];
    for (nodes, rate) in points {
        let nodes = *nodes as f64;
        let wanted = nodes / rate;
        let terms = [1.0, nodes - 1.0, nodes * (nodes - 1.0)];
        let weight = 1.0 / (wanted * wanted);
        for row in 0..unknowns {
            for column in 0..unknowns {
                matrix[row][column] += weight * terms[row] * terms[column];
            }
            matrix[row][3] += weight * terms[row] * wanted;
        }
    }
    let [a, b, c] = eliminate(matrix, unknowns)?;
    (a > 0.0).then(|| [1.0 / a, b / a, c / a])
}

/// Gaussian elimination with pivots; the last column is the right-hand side.
fn eliminate(mut matrix: [[f64; 4]; 3], unknowns: usize) -> Option<[f64; 3]> {
    let mut solution = [0.0; 3];
    for step in 0..unknowns {
        let pivot =
            (step..unknowns).max_by(|a, b| matrix[*a][step].abs().total_cmp(&matrix[*b][step].abs()))?;
        matrix.swap(step, pivot);
        if matrix[step][step].abs() < 1e-12 {
            return None;
        }
        for row in step + 1..unknowns {
            let factor = matrix[row][step] / matrix[step][step];
            let above = matrix[step];
            matrix[row].iter_mut().zip(above).for_each(|(cell, above)| *cell -= factor * above);
        }
    }
    for step in (0..unknowns).rev() {
        let known: f64 = (step + 1..unknowns).map(|column| matrix[step][column] * solution[column]).sum();
        solution[step] = (matrix[step][3] - known) / matrix[step][step];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published;

    fn published_fit(workload: &str, sizes: &[usize]) -> Fit {
        let rate =
            |nodes: &usize| published::per_second("rethinkdb-2.1.5", workload, *nodes).expect("published");
        fit(&sizes.iter().map(|nodes| (*nodes, rate(nodes))).collect::<Vec<_>>())
    }

    fn close(found: Option<f64>, wanted: f64, by: f64) -> bool {
        found.is_some_and(|found| (found - wanted).abs() <= by)
    }

    #[test]
    fn a_curve_of_the_law_gives_its_parameters_back() {
        let wanted = [5_000.0, 0.03, 0.002];
        let points: Vec<(usize, f64)> = [1, 2, 4, 8, 16].map(|n| (n, law(wanted, n as f64))).into();
        let found = fit(&points);
        assert!(found.applies, "{found:?}");
        assert!(close(found.lambda, 5_000.0, 1e-6) && close(found.sigma, 0.03, 1e-9));
        assert!(close(found.kappa, 0.002, 1e-9) && close(found.peak_nodes, 22.02, 0.01));
        assert!(close(found.at(8), points[3].1, 1e-6));
    }

    /// The parameters that the research on benchmarks (1.4) computed from the same raw data.
    #[test]
    fn published_series_have_their_known_fits() {
        let outdated = published_fit("c-outdated", &[1, 2, 3, 4, 8, 12, 16]);
        assert!(outdated.applies, "{outdated:?}");
        assert!(close(outdated.lambda, 140_641.0, 150.0) && close(outdated.sigma, 0.021, 0.001));
        assert!(close(outdated.kappa, 0.0014, 0.0001));
        let single = published_fit("c-sync", &[2, 3, 4, 8, 12, 16]);
        assert!(close(single.lambda, 62_736.0, 150.0) && close(single.sigma, 0.051, 0.001));
        assert_eq!(single.kappa, Some(0.0));
    }

    #[test]
    fn the_law_does_not_apply_to_other_curves() {
        let faster = published_fit("a", &[2, 4, 8, 12, 16]);
        assert!(!faster.applies && close(faster.sigma, -0.048, 0.002), "{faster:?}");
        assert!(faster.why_not.as_deref().is_some_and(|why| why.contains("faster")));
        assert_eq!(faster.at(4), None);
        let hop = published_fit("c-sync", &[1, 2, 3, 4, 8, 12, 16]);
        assert!(hop.why_not.as_deref().is_some_and(|why| why.contains("misses")), "{hop:?}");
        assert!(fit(&[(1, 1.0), (2, 2.0), (4, 4.0)]).why_not.is_some_and(|why| why.contains("too few")));
        assert!(!fit(&[(1, 1.0), (2, 0.0), (4, 4.0), (8, 8.0)]).applies);
    }
}
