#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares bench_model with llama.cpp's llama-bench: the same GGUF files, the same numbers of threads, one run after the
other and never both at once, as often as --repetitions says. Prints medians of tokens per second and their ratio, ours
over theirs, beside the share of the read bandwidth that ours comes to.

    bench/compare_llama_cpp.py LLAMA_CPP_BUILD MODEL.gguf [...] [--threads 1,2] [--json FILE]

LLAMA_CPP_BUILD is the folder in which llama.cpp was built: it has bin/llama-bench.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SHOWN_LINES = 5  # of a program that failed


class Failure(Exception):
    """What could not be done, as a sentence."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: {message} (--help shows the arguments)\n")


def counts(text):
    """A list of positive numbers: "1,2"."""
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise ValueError(text)
    return numbers


counts.__name__ = "list of positive numbers"


def parse_arguments():
    parser = Parser(prog="compare_llama_cpp.py", description=__doc__.split("\n\n")[0])
    parser.add_argument("llama_cpp_build", metavar="LLAMA_CPP_BUILD", type=Path, help="the folder with bin/llama-bench")
    parser.add_argument("models", metavar="MODEL.gguf", type=Path, nargs="+")
    parser.add_argument("--bench-model", type=Path, default=REPOSITORY / "build/bench/bench_model", metavar="PATH")
    parser.add_argument("--threads", type=counts, default=[1], metavar="N,N", help="default: 1")
    parser.add_argument("--prompt", type=int, default=512, metavar="N", help="tokens to prefill (512); 0: do not")
    parser.add_argument("--gen", type=int, default=128, metavar="N", help="tokens to decode (128); 0: do not")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="runs of each program (5)")
    parser.add_argument("--activations", default="exact", metavar="NAME,NAME", help="of bench_model (exact)")
    parser.add_argument("--cache-format", default="f16", metavar="NAME", help="of bench_model (f16, as llama-bench has)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="a file to write all samples to")
    arguments = parser.parse_args()
    if arguments.prompt < 0 or arguments.gen < 0 or arguments.repetitions < 1:
        parser.error("--prompt and --gen must not be negative, --repetitions must be positive")
    if arguments.prompt == 0 and arguments.gen == 0:
        parser.error("--prompt and --gen are both 0: there is nothing to measure")
    return arguments


def require_program(path):
    if not path.is_file():
        raise Failure(f"{path}: does not exist")
    if not os.access(path, os.X_OK):
        raise Failure(f"{path}: is not a program")


def run(command):
    """The standard output of a command."""
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, errors="replace", check=False)
    if result.returncode != 0:
        said = (result.stderr.strip() or result.stdout.strip()).splitlines()[-SHOWN_LINES:]
        raise Failure("\n".join([f"{command[0]}: exit status {result.returncode}", *("  " + line for line in said)]))
    return result.stdout


def parse_json(text, source):
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Failure(f"{source}: its output is not JSON: {error}") from error


def run_llama_bench(program, model, n_threads, arguments):
    """Tokens per second, by the kind of test."""
    entries = parse_json(run([program, "-m", model, "-p", arguments.prompt, "-n", arguments.gen, "-t", n_threads,
                              "-r", 1, "-o", "json"]), program)
    rates = {}
    for entry in entries:
        try:
            kind = "prefill" if entry["n_prompt"] > 0 else "decode"
            rates[kind] = entry["avg_ts"]
        except (KeyError, TypeError) as error:
            raise Failure(f"{program}: a result has no {error}") from error
    return rates


def run_bench_model(model, n_threads, arguments):
    """The results of bench_model, by kind of test and activations."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        run([arguments.bench_model, model, "--prompt", arguments.prompt, "--gen", arguments.gen, "--threads", n_threads,
             "--activations", arguments.activations, "--cache-format", arguments.cache_format, "--repetitions", 1,
             "--json", file])
        report = parse_json(file.read_text(), arguments.bench_model)
    if report["skipped"]:
        raise Failure(f"{model}: {report['skipped'][0]}")
    return {(result["test"], result["activations"]): result for result in report["results"]}


def compare(llama_bench, model, n_threads, arguments):
    """Rows of the table: the medians of one model on some threads."""
    theirs, ours = [], []
    for repetition in range(arguments.repetitions):
        if sys.stderr.isatty():
            print(f"\r\x1b[K{model.name}, {n_threads} thread{'s' * (n_threads > 1)}: run {repetition + 1} of "
                  f"{arguments.repetitions}", end="", file=sys.stderr, flush=True)
        turns = [lambda: theirs.append(run_llama_bench(llama_bench, model, n_threads, arguments)),
                 lambda: ours.append(run_bench_model(model, n_threads, arguments))]
        for turn in turns if repetition % 2 == 0 else reversed(turns):
            turn()
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    rows = []
    for kind, activations in ours[0]:
        if any(kind not in rates for rates in theirs):
            raise Failure(f"{llama_bench}: has no result for {kind}")
        results = [run_results[kind, activations] for run_results in ours]
        their_samples = [rates[kind] for rates in theirs]
        our_samples = [result["tokens_per_second"]["median"] for result in results]
        shares = [result["share_of_read_bandwidth"] for result in results]
        rows.append({
            "model": str(model),
            "threads": n_threads,
            "test": kind,
            "n_tokens": results[0]["n_tokens"],
            "activations": activations,
            "cache_format": arguments.cache_format,
            "llama_cpp": {"median": statistics.median(their_samples), "samples": their_samples},
            "kvdecode": {"median": statistics.median(our_samples), "samples": our_samples},
            "ratio": statistics.median(our_samples) / statistics.median(their_samples),
            "share_of_read_bandwidth": None if None in shares else statistics.median(shares),
        })
    return rows


def print_row(width, model, threads, test, activations, theirs, ours, ratio, share):
    print(f"{model:{width}}  {threads:>7}  {test:<12}  {activations:<11}  {theirs:>9}  {ours:>8}  {ratio:>5}  {share:>7}",
          flush=True)


def main():
    arguments = parse_arguments()
    llama_bench = arguments.llama_cpp_build / "bin/llama-bench"
    for program in llama_bench, arguments.bench_model:
        require_program(program)
    for model in arguments.models:
        if not model.is_file():
            raise Failure(f"{model}: is not a file")

    width = max(len("model"), *(len(model.name) for model in arguments.models))
    print(f"tokens per second, medians of {arguments.repetitions}")
    print_row(width, "model", "threads", "test", "activations", "llama.cpp", "kvdecode", "ratio", "of read")
    all_rows = []
    for model in arguments.models:
        for n_threads in arguments.threads:
            for row in compare(llama_bench, model, n_threads, arguments):
                all_rows.append(row)
                share = row["share_of_read_bandwidth"]
                print_row(width, model.name, n_threads, f"{row['test']} {row['n_tokens']}", row["activations"],
                          f"{row['llama_cpp']['median']:,.1f}", f"{row['kvdecode']['median']:,.1f}",
                          f"{row['ratio']:.2f}", "-" if share is None else f"{share:.0%}")
    if arguments.json:
        arguments.json.write_text(json.dumps(all_rows, indent=2) + "\n")


if __name__ == "__main__":
    try:
        main()
    except (Failure, OSError) as failure:
        sys.exit(f"compare_llama_cpp.py: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
