//! The pictures, as SVG.

use super::{
    data::{Figures, Measurement, Place},
    plan::{BLOCKS, DEPTH, DEPTHS, KIB_4, MIB, NULL, READ, STREAM, WRITE},
};
use plotters::prelude::*;

/// Files and what they show.
pub(super) const PICTURES: [(&str, &str); 3] = [
    ("throughput-by-block.svg", "Throughput by the size of blocks, at depth 8"),
    ("throughput-by-depth.svg", "Throughput of 1 MiB blocks by depth"),
    ("operations-by-depth.svg", "Small operations a second by depth"),
];

const SIZE: (u32, u32) = (760, 420);
/// Room above the highest point.
const HEADROOM: f64 = 1.15;
const COLOURS: [RGBColor; 4] =
    [RGBColor(0x1F, 0x77, 0xB4), RGBColor(0xD6, 0x5F, 0x0E), RGBColor(0x60, 0x60, 0x60), RGBColor(0x2C, 0x8C, 0x3C)];

/// A line of a picture: its name, and a value for each place on the axis, or none if it was not measured there.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) values: Vec<Option<f64>>,
}

/// All pictures, in the order of [`PICTURES`].
pub(super) fn pictures(figures: &Figures) -> anyhow::Result<Vec<String>> {
    let of = |op, block, depth| figures.of(Place::Free, op, block, depth);
    let throughput = |found: &Measurement| found.median.mib_per_s;
    let by_block = |op, depth| {
        let value = |block: u32| of(op, Some(block), depth).map(throughput);
        BLOCKS.map(value).to_vec()
    };
    let by_depth = |op, block, value: fn(&Measurement) -> f64| {
        let value = |depth: u64| of(op, block, depth).map(value);
        DEPTHS.map(value).to_vec()
    };
    let stream = of(STREAM, Some(MIB), 1).map(throughput);
    let blocks =
        BLOCKS.map(|block| if block < MIB { format!("{}K", block >> 10) } else { format!("{}M", block >> 20) });
    let depths = DEPTHS.map(|depth| depth.to_string());
    let [first, second, third] = PICTURES.map(|(_, title)| title);
    Ok(vec![
        draw(
            first,
            ("bytes in a block", &blocks),
            "MiB/s",
            &[
                Line { name: "READ", values: by_block(READ, DEPTH) },
                Line { name: "WRITE", values: by_block(WRITE, DEPTH) },
                Line { name: "raw TCP stream", values: by_block(STREAM, 1) },
            ],
        )?,
        draw(
            second,
            ("calls under way", &depths),
            "MiB/s",
            &[
                Line { name: "READ", values: by_depth(READ, Some(MIB), |found| found.median.mib_per_s) },
                Line { name: "WRITE", values: by_depth(WRITE, Some(MIB), |found| found.median.mib_per_s) },
                Line { name: "raw TCP stream", values: vec![stream; DEPTHS.len()] },
            ],
        )?,
        draw(
            third,
            ("calls under way", &depths),
            "operations a second",
            &[
                Line { name: "READ of 4 KiB", values: by_depth(READ, Some(KIB_4), |found| found.median.ops_per_s) },
                Line { name: "NULL", values: by_depth(NULL, None, |found| found.median.ops_per_s) },
            ],
        )?,
    ])
}

/// Draws lines over places that have names.
pub(super) fn draw(
    title: &str,
    (axis, places): (&str, &[String]),
    unit: &str,
    lines: &[Line],
) -> anyhow::Result<String> {
    let highest = lines.iter().flat_map(|line| line.values.iter().flatten()).copied().fold(0.0, f64::max);
    let top = if highest > 0.0 { highest * HEADROOM } else { 1.0 };
    let last = i32::try_from(places.len().saturating_sub(1)).unwrap_or(i32::MAX).max(1);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        // Readable on a dark page, too.
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 18))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(0..last, 0.0..top)?;
        let name = |at: &i32| usize::try_from(*at).ok().and_then(|at| places.get(at)).cloned().unwrap_or_default();
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .x_labels(places.len())
            .x_label_formatter(&name)
            .x_desc(axis)
            .y_desc(unit)
            .y_label_formatter(&|value| format!("{value:.0}"))
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 14))
            .draw()?;
        for (line, colour) in lines.iter().zip(COLOURS) {
            let points = || (0..).zip(&line.values).filter_map(|(at, value): (i32, _)| Some((at, (*value)?)));
            let style = colour.stroke_width(2);
            let drawn = chart.draw_series(LineSeries::new(points(), style))?;
            drawn.label(line.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
            chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
        }
        let mut legend = chart.configure_series_labels();
        let legend = legend.position(SeriesLabelPosition::UpperLeft).label_font(("sans-serif", 13));
        legend.background_style(WHITE.mix(0.85)).border_style(RGBColor(0xC0, 0xC0, 0xC0)).draw()?;
        area.present()?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::table;

    #[test]
    fn each_picture_shows_a_line_for_each_series_with_all_its_points() {
        let figures = table::tests::figures();
        let pictures = pictures(&figures).unwrap();
        assert_eq!(pictures.len(), PICTURES.len());
        let shapes = [(3, BLOCKS.len()), (3, DEPTHS.len()), (2, DEPTHS.len())];
        for ((svg, (lines, points)), (_, title)) in pictures.iter().zip(shapes).zip(PICTURES) {
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            assert!(svg.contains(title), "{title}");
            assert_eq!(svg.matches("<circle").count(), lines * points, "{title}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{title}");
        }
        assert!(pictures[0].contains("64K") && pictures[0].contains("raw TCP stream"));
        assert_eq!(pictures, super::pictures(&figures).unwrap(), "the same numbers make the same picture");
    }

    /// The point with the highest value stands at the height of its value, and a point with half the value at half the
    /// height.
    #[test]
    fn points_stand_where_their_values_are() {
        let line = Line { name: "x", values: vec![Some(100.0), Some(50.0), Some(0.0)] };
        let svg = draw("t", ("a", &["1", "2", "3"].map(str::to_owned)), "u", &[line]).unwrap();
        let heights: Vec<i32> = svg
            .lines()
            .filter(|line| line.starts_with("<circle"))
            .map(|line| line.split("cy=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        let [high, middle, low] = heights[..] else { panic!("{heights:?}") };
        assert!(high < middle && (low - middle - (middle - high)).abs() <= 1, "{heights:?}");
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        let figures = Figures { measurements: Vec::new(), ..table::tests::figures() };
        assert!(pictures(&figures).unwrap().iter().all(|svg| !svg.contains("<circle") && svg.contains("READ")));
    }
}
