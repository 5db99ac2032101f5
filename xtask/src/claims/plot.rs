//! Line plots as SVG: axes, ticks, one coloured line with marks a series, a legend.

use std::fmt::Write as _;

use serde::Deserialize;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 52.0;
/// Colours that people with colour blindness tell apart (Okabe and Ito 2008).
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666",
];

/// A plot in a program's output.
#[derive(Debug, Deserialize)]
pub(super) struct Plot {
    /// Heading; also the file's name.
    pub(super) title: String,
    /// What the horizontal axis is, with its unit.
    x: String,
    /// What the vertical axis is, with its unit.
    y: String,
    /// Logarithmic horizontal axis; points at zero or below stand at its left end.
    #[serde(default)]
    log_x: bool,
    /// Logarithmic vertical axis.
    #[serde(default)]
    log_y: bool,
    /// The lines.
    series: Vec<Series>,
}

#[derive(Debug, Deserialize)]
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

/// One axis: the range of values and the pixels that it covers.
struct Axis {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64> + Clone, log: bool, from: f64, to: f64) -> Self {
        let positive = values.clone().filter(|value| *value > 0.0);
        let max = values.clone().fold(f64::MIN, f64::max).max(1e-9);
        let (low, high) = if log {
            let min = positive.fold(f64::MAX, f64::min).min(max);
            (
                10f64.powf(min.log10().floor()),
                10f64.powf(max.log10().ceil()),
            )
        } else {
            let step = nice_step(max);
            (0.0, (max / step).ceil() * step)
        };
        Self {
            low,
            high: if high > low { high } else { low * 10.0 + 1.0 },
            log,
            from,
            to,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        let (mut tick, step) = (self.low, nice_step(self.high));
        while tick <= self.high * 1.0001 && ticks.len() < 20 {
            ticks.push(tick);
            tick = if self.log { tick * 10.0 } else { tick + step };
        }
        ticks
    }
}

/// Returns 1, 2 or 5 times a power of ten, so that the range has about five steps.
fn nice_step(range: f64) -> f64 {
    let raw = range / 5.0;
    let power = 10f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|factor| factor * power >= raw * 0.9999);
    factor.unwrap_or(10.0) * power
}

fn label(value: f64) -> String {
    match value {
        _ if value >= 1e6 => format!("{} M", value / 1e6),
        _ if value >= 1e3 => format!("{} k", value / 1e3),
        _ => {
            let text = format!("{value:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

impl Plot {
    /// Draws the plot.
    pub(super) fn svg(&self) -> String {
        let points = self.series.iter().flat_map(|series| series.points.iter());
        let x = Axis::new(points.clone().map(|p| p.0), self.log_x, LEFT, WIDTH - RIGHT);
        let y = Axis::new(points.map(|p| p.1), self.log_y, HEIGHT - BOTTOM, TOP);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"14\" font-weight=\"bold\">{}</text>\n",
            escape(&self.title)
        );
        self.axes(&mut svg, &x, &y);
        for (index, series) in self.series.iter().enumerate() {
            draw_series(&mut svg, series, index, &x, &y);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn axes(&self, svg: &mut String, x: &Axis, y: &Axis) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for tick in x.ticks() {
            let at = x.place(tick);
            let _ = writeln!(
                svg,
                "<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#ddd\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                label(tick)
            );
        }
        for tick in y.ticks() {
            let at = y.place(tick);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                label(tick)
            );
        }
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#222\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 12.0,
            escape(&self.x),
            (TOP + bottom) / 2.0,
            escape(&self.y)
        );
    }
}

fn draw_series(svg: &mut String, series: &Series, index: usize, x: &Axis, y: &Axis) {
    let colour = COLOURS[index % COLOURS.len()];
    let at = |point: &(f64, f64)| (x.place(point.0), y.place(point.1));
    let line: Vec<String> = series
        .points
        .iter()
        .map(|point| {
            let (x, y) = at(point);
            format!("{x:.1},{y:.1}")
        })
        .collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
        line.join(" ")
    );
    for point in &series.points {
        let (x, y) = at(point);
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
        );
    }
    let row = TOP + 10.0 + 18.0 * index as f64;
    let left = WIDTH - RIGHT + 14.0;
    let _ = writeln!(
        svg,
        "<path d=\"M{left} {row}h18\" stroke=\"{colour}\" stroke-width=\"2\"/>\
         <text x=\"{}\" y=\"{}\">{}</text>",
        left + 24.0,
        row + 4.0,
        escape(&series.name)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_lies_inside_the_axes() {
        let plot = Plot {
            title: "CPU & load".into(),
            x: "packets/s".into(),
            y: "% of a core".into(),
            log_x: true,
            log_y: false,
            series: vec![Series {
                name: "ours".into(),
                points: vec![(0.0, 0.0), (1_000.0, 2.0), (250_000.0, 99.0)],
            }],
        };
        let svg = plot.svg();
        assert!(svg.contains("CPU &amp; load"));
        assert_eq!(svg.matches("<circle").count(), 3);
        for part in svg.split("<circle cx=\"").skip(1) {
            let x: f64 = part.split('"').next().unwrap().parse().unwrap();
            assert!((LEFT..=WIDTH - RIGHT + 0.1).contains(&x), "{x}");
        }
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(nice_step(100.0), 20.0);
        assert_eq!(nice_step(7.0), 2.0);
        assert_eq!(label(250_000.0), "250 k");
        assert_eq!(label(0.25), "0.25");
    }
}
