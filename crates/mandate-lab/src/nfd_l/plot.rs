//! The experiment as one picture: the paper's box plots beside ours, and the detectors with and
//! without bursts.

use mandate_proto::detector::quartiles::Quartiles;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::NfdLResults;
use super::comparison::Row;
use super::report::{PAPER_DETECTION_MS, PAPER_RECOVERY_MS, in_ms};

/// Why a picture could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the plot could not be drawn: {0}")]
pub struct PlotError(String);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const OURS: RGBColor = RGBColor(31, 119, 180);
const PAPER: RGBColor = RGBColor(150, 150, 150);
const BURSTS: RGBColor = RGBColor(214, 96, 77);

/// Draws the results as an SVG document.
pub fn svg(results: &NfdLResults) -> Result<String, PlotError> {
    let mut document = String::new();
    draw(&mut document, results).map_err(|error| PlotError(error.to_string()))?;
    Ok(document)
}

fn draw(document: &mut String, results: &NfdLResults) -> Result<(), Box<dyn std::error::Error>> {
    crate::picture::font();
    let root = SVGBackend::with_string(document, (960, 720)).into_drawing_area();
    root.fill(&WHITE)?;
    let panels = root.margin(10, 10, 10, 10).split_evenly((2, 2));
    let detection = results.speed.detection_quartiles().map(in_ms);
    let recovery = results.speed.recovery_quartiles().map(in_ms);
    draw_boxes(&panels[0], "Detection time, ms (bound 1000)", PAPER_DETECTION_MS, detection)?;
    draw_boxes(&panels[1], "Recovery detection, ms (bound 1000)", PAPER_RECOVERY_MS, recovery)?;
    let comparison = &results.comparison;
    let pairs = || comparison.calm.iter().zip(&comparison.bursts);
    let mistakes = pairs().map(|(calm, bursty)| Bars {
        name: calm.detector.short(),
        calm: calm.mistakes_per_hour,
        bursty: bursty.mistakes_per_hour,
    });
    draw_bars(&panels[2], "Mistakes an hour (bound 1)", 1.0, mistakes.collect())?;
    let median = |row: &Row| row.mistake_duration.map_or(0.0, |q| q.median * 1000.0);
    let durations = pairs().map(|(calm, bursty)| Bars {
        name: calm.detector.short(),
        calm: median(calm),
        bursty: median(bursty),
    });
    draw_bars(
        &panels[3],
        "Mistake duration, median, ms (bound 1000)",
        1000.0,
        durations.collect(),
    )?;
    root.present()?;
    Ok(())
}

/// Two boxes: the paper's quartiles, and ours with whiskers to the extremes.
fn draw_boxes(
    area: &Area<'_>,
    title: &str,
    paper: [f64; 3],
    ours: Option<Quartiles>,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(8)
        .x_label_area_size(30)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..4.0f64, 0.0..1100.0f64)?;
    let name = |x: &f64| match *x {
        1.0 => "paper".to_string(),
        3.0 => "measured".to_string(),
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(0)
        .x_labels(5)
        .x_label_formatter(&name)
        .draw()?;
    chart
        .draw_series([PathElement::new([(0.0, 1000.0), (4.0, 1000.0)], BURSTS.stroke_width(2))])?;
    let mut draw_box = |x: f64, [first, median, third]: [f64; 3], colour: RGBColor| {
        chart.draw_series([Rectangle::new(
            [(x - 0.4, first), (x + 0.4, third)],
            colour.mix(0.5).filled(),
        )])?;
        chart.draw_series([PathElement::new(
            [(x - 0.4, median), (x + 0.4, median)],
            BLACK.stroke_width(2),
        )])?;
        Ok::<_, DrawingAreaErrorKind<std::io::Error>>(())
    };
    draw_box(1.0, paper, PAPER)?;
    if let Some(q) = ours {
        draw_box(3.0, [q.first, q.median, q.third], OURS)?;
        let whiskers = [[(3.0, q.min), (3.0, q.first)], [(3.0, q.third), (3.0, q.max)]];
        chart.draw_series(whiskers.map(|line| PathElement::new(line, BLACK.stroke_width(1))))?;
    }
    Ok(())
}

struct Bars {
    name: &'static str,
    calm: f64,
    bursty: f64,
}

/// A pair of bars for each detector: calm and bursty.
fn draw_bars(
    area: &Area<'_>,
    title: &str,
    bound: f64,
    bars: Vec<Bars>,
) -> Result<(), Box<dyn std::error::Error>> {
    let highest = bars.iter().map(|bar| bar.calm.max(bar.bursty)).fold(bound, f64::max) * 1.15;
    let width = 2.0 * bars.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(8)
        .x_label_area_size(30)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..width, 0.0..highest)?;
    // Detector i stands at 2i + 1.
    let name = |x: &f64| {
        let place = *x as usize;
        let named = bars.get(place / 2).filter(|_| place % 2 == 1);
        named.map_or(String::new(), |bar| bar.name.to_string())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(0)
        .x_labels(bars.len() * 2 + 1)
        .x_label_formatter(&name)
        .draw()?;
    for (name, side, colour) in [("calm", 0.0, OURS), ("bursts", 1.0, BURSTS)] {
        let rectangles = bars.iter().enumerate().map(|(i, bar)| {
            let height = if side == 0.0 { bar.calm } else { bar.bursty };
            let left = 2.0 * i as f64 + 0.3 + 0.7 * side;
            Rectangle::new([(left, 0.0), (left + 0.7, height)], colour.mix(0.7).filled())
        });
        chart
            .draw_series(rectangles)?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled()));
    }
    let line = [(0.0, bound), (width, bound)];
    chart.draw_series([PathElement::new(line, BLACK.stroke_width(1))])?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    Ok(())
}
