//! Line plots as SVG, for the figures that a command writes beside its tables.

use std::fmt::Write as _;

use crate::Plot;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 52.0;
/// Colours that people with colour blindness tell apart (Okabe and Ito 2008).
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666",
];

/// Draws a plot.
pub fn draw(plot: &Plot) -> String {
    let points = || plot.series.iter().flat_map(|series| series.points.iter());
    let scale = |value: f64, log: bool| if log { value.max(1e-9).log10() } else { value };
    let range = |of: &dyn Fn(&(f64, f64)) -> f64, log: bool| {
        let values = points().map(|point| scale(of(point), log));
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let low = if log { low } else { low.min(0.0) };
        (low, if high > low { high } else { low + 1.0 })
    };
    let (x_low, x_high) = range(&|point| point.0, plot.log_x);
    let (y_low, y_high) = range(&|point| point.1, plot.log_y);
    let x = |value: f64| {
        LEFT + (scale(value, plot.log_x) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
    };
    let y = |value: f64| {
        HEIGHT
            - BOTTOM
            - (scale(value, plot.log_y) - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{}</text>\n",
        escape(&plot.title)
    );
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for step in 0..=5 {
        let part = f64::from(step) / 5.0;
        let value = y_low + part * (y_high - y_low);
        let value = if plot.log_y {
            10_f64.powf(value)
        } else {
            value
        };
        let at = y(value);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            number(value)
        );
    }
    let mut ticks: Vec<f64> = points().map(|point| point.0).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    for value in ticks {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            x(value),
            bottom + 18.0,
            number(value)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
         <text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 12.0,
        escape(&plot.x),
        (TOP + bottom) / 2.0,
        escape(&plot.y)
    );
    for (at, series) in plot.series.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let mut line = String::new();
        for (px, py) in &series.points {
            let _ = write!(line, "{:.1},{:.1} ", x(*px), y(*py));
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                x(*px),
                y(*py)
            );
        }
        let text_y = TOP + 16.0 * at as f64;
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <rect x=\"{}\" y=\"{}\" width=\"12\" height=\"3\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            line.trim_end(),
            right + 14.0,
            text_y - 5.0,
            right + 32.0,
            text_y,
            escape(&series.name)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        100.0.. => format!("{value:.0}"),
        1.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Series;

    #[test]
    fn a_plot_has_its_series_inside_of_its_frame() {
        let plot = Plot {
            title: "a < b".into(),
            x: "x".into(),
            y: "y".into(),
            log_x: true,
            log_y: false,
            series: vec![Series {
                name: "one".into(),
                points: vec![(1.0, 5.0), (4.0, 10.0)],
            }],
        };
        let svg = draw(&plot);
        assert!(
            svg.contains("a &lt; b") && svg.contains("<polyline points=\"70.0,192.0 530.0,36.0\""),
            "{svg}"
        );
    }
}
