#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Turns what kvdecode_bench measured into figures and one self-contained HTML page.

    kvdecode_bench --benchmark_out=bench.json --benchmark_out_format=json
    bench/plot.py bench.json [MORE.json ...] --html report.html [--figures FOLDER] [--format png|svg]

Several files are read as one. A figure whose rows are in none of them is left out, and the page says which command
measures it. Needs matplotlib (Debian: python3-matplotlib); all else is the standard library.
"""

import argparse
import base64
import html
import io
import json
import math
import pathlib
import sys

try:
    import matplotlib
except ImportError:
    print("plot.py needs matplotlib (Debian: python3-matplotlib)", file=sys.stderr)
    sys.exit(3)
matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter

# Okabe & Ito's colours, which the colour-blind tell apart too.
BLUE, RED, GREEN, SKY, PINK, ORANGE, GREY = (
    "#0072B2", "#D55E00", "#009E73", "#56B4E9", "#CC79A7", "#E69F00", "#555555")
COLOURS = [BLUE, RED, GREEN, PINK, ORANGE, SKY, "#000000"]
STRATEGIES = [("recompute", RED, "o"), ("cached", BLUE, "s")]
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}

plt.rcParams.update({
    "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#e4e4e4", "axes.axisbelow": True, "axes.titlesize": 11, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "lines.linewidth": 1.8, "lines.markersize": 5, "figure.dpi": 110,
    "svg.fonttype": "path", "svg.hashsalt": "kvdecode"})


# ---- Rows ----------------------------------------------------------------------------------------------------------


class Row:
    """One measured line: its family, its arguments, seconds an iteration, and counters."""

    def __init__(self, entry):
        parts = entry["run_name"].split("/")
        self.family = "/".join(p for p in parts if ":" not in p and p != "real_time")
        self.args = {}
        for part in parts:
            name, colon, value = part.partition(":")
            if colon and value.isdigit():
                self.args[name] = int(value)
        # One thread's time is the processor's; of several, the clock's.
        clock = "real_time" if "real_time" in parts else "cpu_time"
        self.seconds = entry[clock] * SECONDS[entry["time_unit"]]
        self.counters = {k: v for k, v in entry.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}

    def __getitem__(self, name):
        return self.counters[name]

    def get(self, name, default=None):
        return self.counters.get(name, default)


class Results:
    def __init__(self, files):
        self.contexts, self.rows, self.fits, self.errors = [], [], {}, []
        for file in files:
            with open(file, encoding="utf-8") as stream:
                data = json.load(stream)
            self.contexts.append(data["context"])
            for entry in data["benchmarks"]:
                if entry.get("error_occurred"):
                    self.errors.append((entry["name"], entry.get("error_message", "")))
                elif entry["run_type"] == "iteration":
                    self.rows.append(Row(entry))
                elif entry.get("aggregate_name") == "BigO":
                    self.fits[entry["run_name"]] = entry["big_o"]

    def family(self, name):
        """Rows of a family by its first argument."""
        rows = [row for row in self.rows if row.family == name]
        return sorted(rows, key=lambda row: list(row.args.values())[:1])

    def starting_with(self, prefix):
        return [row for row in self.rows if row.family.startswith(prefix)]


def growth_exponent(points):
    """The slope of log y over log x, by least squares."""
    u, v = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    mean_u, mean_v = sum(u) / len(u), sum(v) / len(v)
    spread = sum((a - mean_u) ** 2 for a in u)
    return sum((a - mean_u) * (b - mean_v) for a, b in zip(u, v)) / spread


def upper_half(points):
    return points[len(points) // 2:]


# ---- Numbers as people read them --------------------------------------------------------------------------------


def time_text(seconds):
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return "0 s"


def count_text(value):
    for unit, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g}"


def bytes_text(value):
    for unit, factor in (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f} B"


def length_text(n):
    return f"{n // 1024}K" if n >= 1024 and n % 1024 == 0 else f"{n}"


def log_axes(ax, xs, y_text):
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(sorted(set(xs)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: length_text(int(round(x)))))
    ax.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: y_text(y)))
    ax.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    ax.minorticks_off()


def label_ends(ax, labels, gap=0.055):
    """Writes each (x, y, text, colour) to the right of its point, moved apart where they would meet. Limits are set."""
    def to_axes(x, y):
        return ax.transAxes.inverted().transform(ax.transData.transform((x, y)))

    blocks = []  # of labels that touch: their places, and the height of the middle
    for label in sorted(((*to_axes(x, y), text, colour) for x, y, text, colour in labels), key=lambda label: label[1]):
        block = ([label], label[1])
        while blocks and block[1] - blocks[-1][1] < gap * (len(block[0]) + len(blocks[-1][0])) / 2:
            together = blocks.pop()[0] + block[0]
            block = (together, sum(label[1] for label in together) / len(together))
        blocks.append(block)
    for block, middle in blocks:
        for i, (x, y, text, colour) in enumerate(block):
            height = middle + gap * (i - (len(block) - 1) / 2)
            ax.annotate(text, (x, y), (x + 0.025, height), xycoords="axes fraction", textcoords="axes fraction",
                        color=colour, va="center", fontsize=9, fontweight="bold", annotation_clip=False)


# ---- Figures: each returns a matplotlib figure, or None without its rows --------------------------------------------

LAYERS = [("attention", "Attention alone: one head of 64 numbers"),
          ("decode", "A whole model: 2 layers, d_model 64")]


def strategy_points(results, layer, value):
    return {name: [(row.args["n_tokens"], value(row)) for row in results.family(f"{layer}/{name}/f32")]
            for name, _, _ in STRATEGIES}


def draw_slope(ax, points, slope):
    """A line of a slope beside the last points: above them for 3, below for 2."""
    last = [(x, y) for x, y in points if x >= points[-1][0] / 8]
    height = [y / x**slope for x, y in last]
    factor = 1.9 * max(height) if slope == 3 else min(height) / 1.9
    x = [last[0][0], last[-1][0]]
    ax.plot(x, [factor * v**slope for v in x], color=GREY, linestyle=(0, (4, 3)), linewidth=1.1)
    middle = math.sqrt(x[0] * x[1])
    above = slope == 3
    ax.annotate(f"slope {slope}", (middle, factor * middle**slope), (-6 if above else 6, 4 if above else -4),
                textcoords="offset points", color=GREY, fontsize=9, ha="right" if above else "left",
                va="bottom" if above else "top")


def total_time(results):
    panels = [(layer, title, strategy_points(results, layer, lambda row: row.seconds)) for layer, title in LAYERS]
    panels = [panel for panel in panels if all(len(points) > 1 for points in panel[2].values())]
    if not panels:
        return None
    figure, axes = plt.subplots(1, len(panels), figsize=(5.6 * len(panels), 4.6), sharey=True, squeeze=False)
    ends = []
    for ax, (layer, title, points) in zip(axes[0], panels):
        xs = [x for series in points.values() for x, _ in series]
        labels = []
        for name, colour, marker in STRATEGIES:
            series = points[name]
            ax.plot(*zip(*series), color=colour, marker=marker)
            exponent = growth_exponent(upper_half(series))
            labels.append((*series[-1], f"{name}\ngrows as T$^{{{exponent:.2f}}}$", colour))
            draw_slope(ax, series, 3 if name == "recompute" else 2)
        log_axes(ax, xs, time_text)
        ax.set_title(title)
        ax.set_xlabel("T, tokens written")
        ax.set_xlim(min(xs) / 1.2, max(xs) * 4.2)
        ax.set_xticks(sorted(set(xs)))
        ends.append((ax, labels))
    axes[0][0].set_ylabel("time for the whole text")
    figure.tight_layout()
    for ax, labels in ends:
        label_ends(ax, labels, 0.1)
    return figure


def total_table(results):
    lines = []
    for layer, title in LAYERS:
        for name, _, _ in STRATEGIES:
            rows = results.family(f"{layer}/{name}/f32")
            if len(rows) < 2:
                continue
            by_time = growth_exponent(upper_half([(row.args["n_tokens"], row.seconds) for row in rows]))
            by_count = growth_exponent(upper_half([(row.args["n_tokens"], row["multiply_adds"]) for row in rows]))
            for row in rows:
                lines.append([title if row is rows[0] else "", name, row.args["n_tokens"], time_text(row.seconds),
                              count_text(row["multiply_adds"]),
                              f"{100 * row['attention_multiply_adds'] / row['multiply_adds']:.0f} %", "", "", ""])
            lines[-1][6:] = [f"T^{by_time:.2f}", f"T^{by_count:.2f}", results.fits.get(f"{layer}/{name}/f32", "")]
    return (["", "strategy", "T", "time", "multiply-adds", "of attention", "time grows as",
             "multiply-adds grow as", "fitted over all"], lines)


def step_time(results):
    naive, cached = results.family("step/recompute/f32"), results.family("step/cached/f32")
    if len(naive) < 2 or len(cached) < 2:
        return None
    figure, (both, alone) = plt.subplots(1, 2, figsize=(11.2, 4.4))
    points = lambda rows, unit: ([row.args["position"] for row in rows], [row.seconds / unit for row in rows])
    both.plot(*points(naive, 1e-3), color=RED, marker="o")
    both.plot(*points(cached, 1e-3), color=BLUE, marker="s")
    both.set_title("Both strategies")
    both.set_ylabel("time of one token, ms")
    alone.plot(*points(cached, 1e-6), color=BLUE, marker="s")
    alone.set_title("cached alone, a thousand times closer")
    alone.set_ylabel("time of one token, µs")
    alone.set_ylim(bottom=0)
    # Matrices cost the same everywhere; attention is what rises.
    first = cached[0].seconds * 1e6
    alone.axhline(first, color=GREY, linestyle=(0, (4, 3)), linewidth=1.1)
    last = cached[-1].args["position"]
    alone.annotate("the matrices: the same at every position", (last, first), (0, -5), textcoords="offset points",
                   color=GREY, fontsize=9, ha="right", va="top")
    alone.annotate("attention over\nall earlier tokens", (0.8 * last, 0.55 * (first + cached[-1].seconds * 1e6)),
                   color=BLUE, fontsize=9, ha="center", va="center", fontweight="bold")
    overtaken = (cached[-1]["multiply_adds"] - cached[-1]["attention_multiply_adds"]) / (
        cached[-1]["attention_multiply_adds"] / (last + 1))
    if overtaken < last:
        alone.axvline(overtaken, color=GREY, linewidth=1.1)
        alone.annotate(f"T = {overtaken:.0f}: attention overtakes", (overtaken, alone.get_ylim()[1]), (5, -3),
                       textcoords="offset points", color=GREY, fontsize=9, va="top")
    for ax in (both, alone):
        ax.set_xlabel("position t of the token")
        ax.set_xlim(0, None)
    both.set_xlim(0, last * 1.35)
    both.set_ylim(bottom=0)
    figure.tight_layout()
    label_ends(both, [(last, naive[-1].seconds * 1e3, "recompute:\na parabola", RED),
                      (last, cached[-1].seconds * 1e3, "cached", BLUE)])
    return figure


def ratio(results):
    curves = []
    for (layer, title), colour, marker in zip(LAYERS, (GREEN, PINK), ("^", "D")):
        for value, style in ((lambda row: row.seconds, "-"), (lambda row: row["multiply_adds"], (0, (4, 3)))):
            points = strategy_points(results, layer, value)
            cached = dict(points["cached"])
            series = [(x, y / cached[x]) for x, y in points["recompute"] if x in cached]
            if len(series) > 1:
                curves.append((title.split(":")[0].lower(), colour, marker, style, series))
    if not curves:
        return None
    figure, ax = plt.subplots(figsize=(7.4, 4.6))
    labels, xs = [], []
    for title, colour, marker, style, series in curves:
        measured = style == "-"
        ax.plot(*zip(*series), color=colour, marker=marker if measured else None, linestyle=style,
                linewidth=1.8 if measured else 1.2)
        labels.append((*series[-1], f"{title}, {'measured' if measured else 'counted'}", colour))
        xs += [x for x, _ in series]
    log_axes(ax, xs, lambda y: f"{y:g}×")
    ax.set_xlim(min(xs) / 1.1, max(xs) * 5)
    ax.set_xticks(sorted(set(xs)))
    lowest, highest = ax.get_ylim()
    ax.set_yticks([m * 10**p for p in range(-1, 5) for m in (1, 2, 5) if lowest <= m * 10**p <= highest])
    ax.set_title("How many times less the cached text costs")
    ax.set_xlabel("T, tokens written")
    ax.set_ylabel("recompute / cached")
    figure.tight_layout()
    label_ends(ax, labels)
    return figure


MEMORY_NAMES = {"gpt2-124m/f16": "GPT-2 124M", "llama-3-8b-without-gqa/f16": "Llama-3-8B, if it had no GQA",
                "llama-3-8b/f16": "Llama-3-8B", "llama-3-8b/int4": "Llama-3-8B, int4", "qwen3-8b/f16": "Qwen3-8B",
                "deepseek-v3-mla/f16": "DeepSeek-V3 (MLA)", "mistral-7b-window-4096/f16": "Mistral-7B, window 4096"}


def memory_families(results):
    names = []
    for row in results.starting_with("memory/"):
        if row.family not in names:
            names.append(row.family)
    return [(MEMORY_NAMES.get(name[len("memory/"):], name[len("memory/"):]), results.family(name)) for name in names]


def memory(results):
    families = [(name, rows) for name, rows in memory_families(results) if len(rows) > 1]
    if not families:
        return None
    figure, ax = plt.subplots(figsize=(8.6, 5.2))
    labels, xs = [], []
    for (name, rows), colour, marker in zip(families, COLOURS, "osD^vPX"):
        series = [(row.args["n_tokens"], row["payload_bytes"]) for row in rows]
        ax.plot(*zip(*series), color=colour, marker=marker)
        labels.append((*series[-1], f"{name}: {bytes_text(series[-1][1])}", colour))
        xs += [x for x, _ in series]
    log_axes(ax, xs, bytes_text)
    ax.set_yscale("log", base=2)
    ticks = [2.0**p for p in range(22, 38, 2)]
    ax.set_yticks([t for t in ticks if ax.get_ylim()[0] <= t <= ax.get_ylim()[1]])
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: bytes_text(y)))
    ax.set_xlim(min(xs) / 1.2, max(xs) * 40)
    ax.set_xticks(sorted(set(xs)))
    ax.set_title("Keys and values of one sequence (16 bits a number, where nothing else is said)")
    ax.set_xlabel("T, tokens in the cache")
    ax.set_ylabel("memory of the cache")
    figure.tight_layout()
    label_ends(ax, labels)
    return figure


def memory_table(results):
    lines = []
    for name, rows in memory_families(results):
        for row in rows:
            allocated = row["allocated_bytes"]
            lines.append([name if row is rows[0] else "", length_text(row.args["n_tokens"]),
                          bytes_text(row["payload_bytes"]), bytes_text(row["required_bytes"]),
                          bytes_text(allocated) if allocated > 0 else "not tried"])
    return ["", "T", "rows", "with pages and slack", "allocated here"], lines


KERNELS = [("linear/tiles/f32", "product, weights in f32", "o", BLUE),
           ("linear/tiles/f16", "product, weights in f16", "s", SKY),
           ("linear/tiles/q8_0", "product, weights in q8_0", "D", GREEN),
           ("linear/int8/q8_0", "the same, activations in bytes", "P", "#000000"),
           ("linear/eigen/f32", "Eigen's product, f32", "^", ORANGE),
           ("linear/loop/f32", "textbook loop, f32", "v", GREY),
           ("attention/read/f32", "attention over f32", "X", PINK),
           ("attention/read/f16", "attention over f16", "*", RED)]


def machine(results):
    """Bytes a second that one thread reads, operations a second that it computes; None if not measured."""
    read, fma = results.family("machine/read/f32"), results.family("machine/fma/f32")
    return (read[0]["bytes/s"], fma[0]["flops"]) if read and fma else None


def roofline(results):
    limits = machine(results)
    families = [(title, marker, colour, [row for row in results.family(name) if row.get("bytes/s")])
                for name, title, marker, colour in KERNELS]
    families = [family for family in families if family[3]]
    if limits is None or not families:
        return None
    read, fma = limits
    figure, ax = plt.subplots(figsize=(8.6, 5.2))
    points = [(row["flops"] / row["bytes/s"], row["flops"]) for *_, rows in families for row in rows]
    lowest, highest = min(x for x, _ in points) / 1.6, max(x for x, _ in points) * 1.6
    ridge = fma / read
    ax.plot([lowest, ridge, highest], [lowest * read / 1e9, fma / 1e9, fma / 1e9], color="#000000", linewidth=2.2)
    ax.set_xscale("log")
    ax.set_yscale("log")
    for title, marker, colour, rows in families:
        x = [row["flops"] / row["bytes/s"] for row in rows]
        y = [row["flops"] / 1e9 for row in rows]
        ax.plot(x, y, linestyle="none", marker=marker, color=colour, markersize=7, markeredgecolor="white",
                markeredgewidth=0.6, label=title)
        many = [(a, b) for a, b, row in zip(x, y, rows) if row.args.get("d_out", 0) < 65536 and "d_out" in row.args]
        if len(many) > 1:
            ax.plot(*zip(*many), color=colour, linewidth=0.9, alpha=0.5)
    ax.annotate(f"memory:\n{read / 1e9:.1f} GB/s", (lowest, 2.3 * lowest * read / 1e9), fontsize=9, va="bottom")
    ax.annotate(f"cores: {fma / 1e9:.0f} Gflop/s", (highest, fma / 1e9), (-4, 5), textcoords="offset points",
                fontsize=9, ha="right")
    ax.legend(loc="lower right", fontsize=9, frameon=True, framealpha=0.95, edgecolor="none", handletextpad=0.2)
    plain = FuncFormatter(lambda v, _: f"{v:g}")
    ax.xaxis.set_major_formatter(plain)
    ax.yaxis.set_major_formatter(plain)
    ax.minorticks_off()
    ax.set_title("One thread: kernels under the roof of the machine")
    ax.set_xlabel("operations a byte of weights, keys or values (more tokens at once: further right)")
    ax.set_ylabel("Gflop/s")
    figure.tight_layout()
    return figure


def kernel_table(results):
    limits = machine(results)
    kernels = [row for prefix in ("rms_norm/", "layer_norm/", "gated_silu/", "gelu/", "gelu_tanh/", "relu/",
                                  "relu_squared/", "rotary/", "hadamard/", "attention/read/", "attention/eigen/",
                                  "attention/loop/", "linear/")
               for row in results.starting_with(prefix)]
    lines = []
    for row in kernels:
        moved, flops = row.get("bytes/s"), row.get("flops")
        share = lambda value, limit: f"{100 * value / limit:.0f} %" if value and limit else ""
        lines.append([row.family, ", ".join(f"{k} {v}" for k, v in row.args.items()), time_text(row.seconds),
                      f"{moved / 1e9:.2f}" if moved else "", share(moved, limits and limits[0]),
                      f"{flops / 1e9:.2f}" if flops else "", share(flops, limits and limits[1])])
    return ["kernel", "", "time", "GB/s", "of reading", "Gflop/s", "of the FMA peak"], lines


OPERATIONS = [("append", "append a position", {"n_new": 1}), ("append", "append 128 positions", {"n_new": 128}),
              ("fork", "fork a prompt of 1,024", {"kv_len": 1024}), ("reorder", "reorder four beams of 1,024", {}),
              ("shift", "drop 16 old positions, append 16", {}), ("clear", "clear, append 1,024", {}),
              ("record", "record 1,024 positions", {}), ("restore", "restore 1,024 positions", {})]
LAYOUTS = [("contiguous", "ContiguousCache", "o", BLUE), ("growing", "GrowingCache", "s", SKY),
           ("paged", "PagedCache", "D", GREEN), ("sliding", "SlidingWindowCache", "P", PINK),
           ("eigen", "a matrix of Eigen a layer", "^", ORANGE), ("loop", "a list of numbers a head", "v", GREY)]


def operation_rows(results):
    """(operation, {layout: its row}) of those that were measured."""
    table = []
    for name, title, args in OPERATIONS:
        own = {layout: row for layout, *_ in LAYOUTS for row in results.family(f"cache/{name}_{layout}/f32")
               if row.args == args}
        if own:
            table.append((title, own))
    return table


def operations(results):
    table = operation_rows(results)
    if not table:
        return None
    figure, ax = plt.subplots(figsize=(8.6, 1.2 + 0.48 * len(table)))
    for y, (_, own) in enumerate(table):
        seconds = [row.seconds for row in own.values()]
        ax.plot([min(seconds), max(seconds)], [y, y], color="#cccccc", linewidth=1.2, zorder=1)
    for i, (layout, title, marker, colour) in enumerate(LAYOUTS):
        points = [(own[layout].seconds, y + 0.09 * (i - 2.5)) for y, (_, own) in enumerate(table) if layout in own]
        if points:
            ax.plot(*zip(*points), linestyle="none", marker=marker, color=colour, markersize=7,
                    markeredgecolor="white", markeredgewidth=0.6, label=title)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: time_text(x)))
    ax.set_yticks(range(len(table)), [title for title, _ in table])
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.legend(loc="upper center", bbox_to_anchor=(0.35, -0.12), ncol=3, fontsize=9, frameon=False)
    ax.set_xlabel("time of the operation, four layers of four heads of 64 numbers (further left is better)")
    ax.set_title("What a cache's operations cost, without any attention")
    figure.tight_layout()
    return figure


def operation_table(results):
    lines = []
    for title, own in operation_rows(results):
        lines.append([title, *(time_text(own[layout].seconds) if layout in own else "" for layout, *_ in LAYOUTS)])
    return ["", *(title for _, title, *_ in LAYOUTS)], lines


def model_rows(results, kind, depth=None, batch=None):
    """Rows of whole models, (model, format, activations, row), with as many threads as were measured."""
    rows = []
    for row in results.starting_with(f"model/{kind}/"):
        _, _, model, weights, activations = row.family.split("/")
        if (depth is None or row.args["depth"] == depth) and (batch is None or row.args["batch"] == batch):
            rows.append((model, weights, activations, row))
    most = max((row.args["threads"] for *_, row in rows), default=0)
    return [entry for entry in rows if entry[3].args["threads"] == most]


def threads_text(n):
    return "1 thread" if n == 1 else f"{n} threads"


def formats(results):
    rows = model_rows(results, "decode", depth=0, batch=1)
    names = sorted({(model, weights) for model, weights, _, _ in rows},
                   key=lambda name: max(row["tokens/s"] for m, w, _, row in rows if (m, w) == name))
    if not names:
        return None
    figure, ax = plt.subplots(figsize=(8.6, 0.9 + 0.32 * len(names)))
    several = len({model for model, _ in names}) > 1
    for y, name in enumerate(names):
        own = {activations: row for m, w, activations, row in rows if (m, w) == name}
        for activations, colour, shift in (("exact", BLUE, 0.18 if "int8" in own else 0.0), ("int8", ORANGE, -0.18)):
            if activations not in own:
                continue
            row = own[activations]
            ax.barh(y + shift, row["tokens/s"], 0.34 if "int8" in own else 0.6, color=colour)
            ax.annotate(f"{row['tokens/s']:.0f}", (row["tokens/s"], y + shift), (3, 0), textcoords="offset points",
                        va="center", fontsize=8)
            # Where the bar would end if reading the weights were all.
            ax.plot([row["tokens/s"] / row["of_read"]] * 2, [y - 0.36, y + 0.36], color="#000000", linewidth=1.4)
    ax.set_yticks(range(len(names)), [f"{m} {w}" if several else w for m, w in names])
    ax.grid(axis="y", visible=False)
    ax.legend(handles=[plt.Rectangle((0, 0), 1, 1, color=BLUE, label="activations as they are"),
                       plt.Rectangle((0, 0), 1, 1, color=ORANGE, label="activations rounded to bytes"),
                       plt.Line2D([], [], color="#000000", label="the memory's limit")],
              loc="lower right", fontsize=9, frameon=True, edgecolor="none")
    ax.set_xlabel("tokens per second")
    model = "" if several else f"{names[0][0]}, "
    ax.set_title(f"{model}decoding at depth 0, {threads_text(rows[0][3].args['threads'])}")
    figure.tight_layout()
    return figure


def by_argument(results, argument, other, title, label, bound_of, bound_text):
    """Tokens per second of decoding against one argument with the other at its least, a line a model and format, each
    with a dashed bound; the one that ends highest says what it is."""
    every = model_rows(results, "decode")
    least = min((row.args[other] for *_, row in every), default=None)
    lines = {}
    for model, weights, activations, row in every:
        if row.args[other] == least:
            name = f"{model} {weights}" + (", int8" if activations == "int8" else "")
            lines.setdefault(name, []).append((row.args[argument], row))
    lines = {name: sorted(points, key=lambda p: p[0]) for name, points in lines.items() if len(points) > 1}
    if not lines:
        return None
    figure, ax = plt.subplots(figsize=(8.0, 4.4))
    labels, bounds = [], []
    for (name, points), colour, marker in zip(lines.items(), COLOURS, "osD^vPX"):
        series = [(x, row["tokens/s"]) for x, row in points]
        ax.plot(*zip(*series), color=colour, marker=marker)
        labels.append((*series[-1], f"{name}\n{series[-1][1]:.0f} tokens/s", colour))
        bound = bound_of(points)
        if bound:
            ax.plot(*zip(*bound), color=colour, linestyle=(0, (4, 3)), linewidth=1.2)
            bounds.append((bound[(len(bound) + 1) // 2 if len(bound) > 2 else -1], colour))
    if bounds:
        place, colour = max(bounds, key=lambda bound: bound[0][1])
        ax.annotate(bound_text, place, (8, 2), textcoords="offset points", color=colour, fontsize=9, va="bottom")
    last = max(x for points in lines.values() for x, _ in points)
    ax.set_xlim(0, last * 1.32)
    ax.set_ylim(bottom=0)
    ax.set_xticks(sorted({x for points in lines.values() for x, _ in points}))
    ax.set_title(f"{title}, {threads_text(every[0][3].args['threads'])}")
    ax.set_xlabel(label)
    ax.set_ylabel("tokens per second")
    figure.tight_layout()
    label_ends(ax, labels, 0.12)
    return figure


def depth(results):
    def limit(points):
        return [(x, row["tokens/s"] / row["of_read"]) for x, row in points if row.get("of_read")]
    return by_argument(results, "depth", "batch", "One sequence behind a longer and longer text",
                       "depth, tokens in the cache", limit, "if reading weights and cache were all")


def batch(results):
    def linear(points):
        each = points[0][1]["tokens/s"] / points[0][0]  # of a sequence by itself
        end = min(points[-1][0], 1.6 * max(row["tokens/s"] for _, row in points) / each)
        return [(0, 0), (end, end * each)]
    return by_argument(results, "batch", "depth", "Several sequences, one step for all",
                       "batch, sequences in a step", linear, "if each sequence came free")


def model_table(results):
    lines = []
    for kind in ("decode", "prefill"):
        for row in results.starting_with(f"model/{kind}/"):
            _, _, model, weights, activations = row.family.split("/")
            share = lambda name: f"{100 * row[name]:.0f} %" if row.get(name) else ""
            lines.append([kind, model, weights, activations, ", ".join(f"{k} {v}" for k, v in row.args.items()),
                          f"{row['tokens/s']:.1f}", share("of_read"), share("of_fma")])
    return ["", "model", "weights", "activations", "", "tokens/s", "of reading", "of the FMA peak"], lines


# ---- The page ------------------------------------------------------------------------------------------------------

MODEL_COMMAND = "--benchmark_filter='^model/decode/smollm2-135m/'"
# name, title, figure, table, two sentences, how its rows are measured
SECTIONS = [
    ("total", "O(T³) against O(T²)", total_time, total_table,
     "Both axes are logarithmic, so a power of T is a straight line whose slope is the power: the naive curve comes to "
     "run beside slope 3, the cached one beside slope 2. The whole model gets there later than attention alone, because "
     "until attention overtakes the matrices a naive text costs T² and a cached one T.", ""),
    ("step", "One token at position t", step_time, None,
     "Recomputing runs all t tokens again for every new one, and each of them attends to those before it: a parabola. "
     "Cached, a token passes the matrices once and attends once to t keys: a constant, and a gentle straight line.", ""),
    ("ratio", "What the cache is worth", ratio, None,
     "A text twice as long is won twice as clearly: the ratio itself grows like T. Solid is the clock, dashed the "
     "multiply-adds, which know nothing of caches, branches and vector registers.", ""),
    ("memory", "What it costs: memory", memory, memory_table,
     "Every line has slope 1, as each token leaves its keys and values behind; models differ in how many heads share "
     "them (GQA), whether a latent stands for all heads (MLA), and how many bits a number takes. Only a window lets the "
     "line end, at the price of forgetting.", ""),
    ("operations", "What its operations cost", operations, operation_table,
     "Layouts differ in what they copy: pages are shared until somebody writes, so forks, beams and shifts of the paged "
     "cache cost a thousandth of a copy, and it pays for that where rows are written and read one page at a time. The last "
     "two are what one writes first, a list for each head and a matrix for each layer.", ""),
    ("roofline", "Kernels under the roof", roofline, kernel_table,
     "Left of the ridge a kernel waits for memory, right of it for the cores: a product of one token's activations uses "
     "each weight once and is at the left, a prompt's 512 tokens use it 512 times. Points above the slanted roof read "
     "matrices that fit into the processor's caches, and activations rounded to bytes are multiplied as integers, which "
     "may pass the roof of floats.", ""),
    ("formats", "Tokens per second by format of the weights", formats, model_table,
     "Decoding reads all weights for every token, so fewer bits a weight are more tokens, until unpacking them costs "
     "more than reading them. The black mark is where a bar would end if memory were the only limit (rows of 576 numbers "
     "are no whole blocks of 256: formats with such blocks keep them in q8_0, and pay for that).", MODEL_COMMAND),
    ("depth", "The cost of depth", depth, None,
     "The longer the text behind a token, the more keys and values its attention reads beside the weights. The dashed "
     "line is what reading all of that would allow.", MODEL_COMMAND),
    ("batch", "Batches", batch, None,
     "Sequences that step together share each weight they read, so together they get more tokens from the same memory. "
     "The dashed line is that gain without end; it bends when the cores, not the memory, become the limit.",
     MODEL_COMMAND),
]

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 68rem; margin: 2rem auto; padding: 0 1rem }
h1 { margin-bottom: 0 } h2 { margin-top: 2.6rem } img { max-width: 100%; height: auto } p { max-width: 46rem }
table { border-collapse: collapse; font-size: 13px; margin: .6rem 0 } details { margin: .6rem 0 }
td, th { padding: .12rem .7rem; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap }
td:first-child, th:first-child { text-align: left } .error { color: #a00 } code { background: #f3f3f3 }
"""


def table_html(columns, lines):
    cells = lambda tag, values: "".join(f"<{tag}>{html.escape(str(value))}</{tag}>" for value in values)
    body = "".join(f"<tr>{cells('td', line)}</tr>\n" for line in lines)
    return f"<table><tr>{cells('th', columns)}</tr>\n{body}</table>\n"


def machine_html(results):
    context = results.contexts[0]
    caches = ", ".join(f"L{c['level']} {c['type'].lower()} {bytes_text(c['size'])}" for c in context.get("caches", []))
    facts = [("processor", f"{context.get('processor') or 'unknown'}, {context['num_cpus']} × {context['mhz_per_cpu']} MHz"),
             ("caches", caches), ("kvdecode", context.get("kvdecode", "")), ("compiler", context.get("compiler", "")),
             ("date", context["date"]), ("load before", ", ".join(f"{load:.2f}" for load in context.get("load_avg", [])))]
    limits = machine(results)
    if limits:
        facts.insert(2, ("one thread", f"reads {limits[0] / 1e9:.1f} GB/s, computes {limits[1] / 1e9:.0f} Gflop/s"))
    return table_html(["the machine", ""], [fact for fact in facts if fact[1]])


def image(figure, kind):
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, metadata={"Date": None} if kind == "svg" else None)
    plt.close(figure)
    return stream.getvalue()


def report(results, arguments):
    parts = ["<h1>kvdecode_bench</h1>\n<p>Decoding with and without a cache of keys and values: one and the same text, "
             "to the last bit, at another price.</p>\n", machine_html(results)]
    for name, message in results.errors:
        parts.append(f'<p class="error">{html.escape(name)}: {html.escape(message)}</p>\n')
    n_figures = 0
    for name, title, draw, tabulate, help_text, command in SECTIONS:
        figure = draw(results)
        parts.append(f'<h2 id="{name}">{html.escape(title)}</h2>\n')
        if figure is None:
            parts.append(f"<p>Not measured. <code>kvdecode_bench {html.escape(command)}</code> does.</p>\n")
            continue
        n_figures += 1
        data = image(figure, arguments.format)
        if arguments.figures:
            (arguments.figures / f"{name}.{arguments.format}").write_bytes(data)
        media = "image/svg+xml" if arguments.format == "svg" else "image/png"
        encoded = base64.b64encode(data).decode("ascii")
        parts.append(f'<p><img alt="{html.escape(title)}" src="data:{media};base64,{encoded}" /></p>\n'
                     f"<p>{html.escape(help_text)}</p>\n")
        if tabulate:
            parts.append(f"<details><summary>The numbers</summary>\n{table_html(*tabulate(results))}</details>\n")
    page = ('<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml" lang="en"><head><meta charset="utf-8" />'
            f"<title>kvdecode_bench</title><style>{STYLE}</style></head>\n<body>\n{''.join(parts)}</body></html>\n")
    return page, n_figures


def main():
    parser = argparse.ArgumentParser(description="Makes figures and a page of what kvdecode_bench measured.")
    parser.add_argument("json", nargs="+", type=pathlib.Path, help="what --benchmark_out left")
    parser.add_argument("--html", type=pathlib.Path, required=True, help="the page to write")
    parser.add_argument("--figures", type=pathlib.Path, help="a folder for the figures as files too")
    parser.add_argument("--format", choices=["png", "svg"], default="svg", help="of the figures")
    arguments = parser.parse_args()
    try:
        results = Results(arguments.json)
        if arguments.figures:
            arguments.figures.mkdir(parents=True, exist_ok=True)
        page, n_figures = report(results, arguments)
        arguments.html.write_text(page, encoding="utf-8")
    except (OSError, ValueError, KeyError) as error:
        print(f"plot.py: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    for name, message in results.errors:
        print(f"plot.py: {name} failed: {message}", file=sys.stderr)
    print(f"{arguments.html}: {n_figures} figures of {len(results.rows)} measured rows")
    return 1 if results.errors else 0


if __name__ == "__main__":
    sys.exit(main())
