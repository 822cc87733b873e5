#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs plot.py on a small result and checks the page: well-formed, all figures inline and whole, growth as it is in the
# data; and how it fails. Exit status 77 where there is no matplotlib.
# usage: check_plot.sh PYTHON PLOT DATA WORK     DATA has small.json and failed.json
set -euo pipefail
python=$1 plot=$2 data=$3 work=$4
if ! "$python" -c 'import matplotlib' 2> /dev/null; then
  echo "skipped: $python has no matplotlib (Debian: python3-matplotlib)"
  exit 77
fi
rm -rf "$work"
mkdir -p "$work"
faults=0
fault() {
  echo "$*"
  faults=$((faults + 1))
}

# ---- The page ---------------------------------------------------------------------------------------------

for format in svg png; do
  "$python" "$plot" "$data/small.json" --html "$work/$format.html" --figures "$work/$format" \
    --format "$format" > "$work/out" 2> "$work/err" || fault "$format: exit status $?"
  [[ ! -s $work/err ]] || fault "$format: on standard error: $(< "$work/err")"
  grep -q ': 9 figures of ' "$work/out" || fault "$format: $(< "$work/out")"
done
"$python" - "$work" << 'PYTHON' || fault "the pages are not in order"
import base64, pathlib, sys
import xml.etree.ElementTree as xml

work, faults = pathlib.Path(sys.argv[1]), []
html = "{http://www.w3.org/1999/xhtml}"
names = ["batch", "depth", "formats", "memory", "operations", "ratio", "roofline", "step", "total"]
for kind in ("svg", "png"):
    page = xml.parse(work / f"{kind}.html").getroot()  # throws unless it is well-formed
    files = {path.read_bytes() for path in (work / kind).iterdir()}
    if sorted(path.stem for path in (work / kind).iterdir()) != names:
        faults.append(f"{kind}: other figures than {names}")
    images = list(page.iter(html + "img"))
    for image in images:
        media, _, data = image.get("src").partition(";base64,")
        data = base64.b64decode(data)
        if kind == "svg":
            xml.fromstring(data)
        elif not data.startswith(b"\x89PNG"):
            faults.append("a figure is no PNG")
        if len(data) < 5000 or data not in files:
            faults.append(f"{image.get('alt')}: not the figure of its file")
    if len(images) != len(names):
        faults.append(f"{kind}: {len(images)} images")
    for element in page.iter():
        for name in ("src", "href"):
            if not element.get(name, "data:").startswith("data:"):
                faults.append(f"the page needs {element.get(name)}")
    # Times are exact powers of T: attention T^3 and T^2, the model T^2.5 and T^1.5.
    rows = [["".join(cell.itertext()) for cell in row] for row in page.iter(html + "tr")]
    grows = [(row[1], row[6], row[7]) for row in rows if len(row) == 9 and row[6].startswith("T^")]
    # The counts are those of the closed forms over T = 128, 256, 512.
    wanted = [("recompute", "T^3.00", "T^2.99"), ("cached", "T^2.00", "T^2.00"),
              ("recompute", "T^2.50", "T^2.20"), ("cached", "T^1.50", "T^1.25")]
    if grows != wanted:
        faults.append(f"growth {grows}, expected {wanted}")
    if not any(row[:4] == ["Llama-3-8B", "1K", "128 MiB", "128 MiB"] for row in rows):
        faults.append("no row of 128 MiB for Llama-3-8B at 1K tokens")
    if ["fork a prompt of 1,024", "400 µs", "", "3 µs", "", "410 µs", "1.3 ms"] not in rows:
        faults.append("forks of 1,024 positions are not beside one another")
print("\n".join(faults))
sys.exit(1 if faults else 0)
PYTHON
cmp -s <("$python" "$plot" "$data/small.json" --html "$work/again.html" > /dev/null; cat "$work/again.html") "$work/svg.html" ||
  fault "the same results make another page"

# ---- How it fails -----------------------------------------------------------------------------------------

fails() {  # STATUS PATTERN ARGUMENT…
  local wanted=$1 pattern=$2 status=0
  shift 2
  "$python" "$plot" "$@" > "$work/out" 2> "$work/err" || status=$?
  ((status == wanted)) || fault "$*: exit status $status, expected $wanted"
  grep -qE -- "$pattern" "$work/err" || fault "$*: no /$pattern/ in: $(< "$work/err")"
}
fails 1 'attention/recompute/f32/n_tokens:32 failed: recomputed and cached attention <differ>' \
  "$data/failed.json" --html "$work/failed.html"
grep -q 'attention &lt;differ&gt;' "$work/failed.html" || fault "the page does not say what failed"
fails 1 'FileNotFoundError' "$work/none.json" --html "$work/none.html"
echo '{"benchmarks": []' > "$work/cut.json"
fails 1 'JSONDecodeError' "$work/cut.json" --html "$work/none.html"
echo '{"benchmarks": []}' > "$work/other.json"
fails 1 'KeyError' "$work/other.json" --html "$work/none.html"
fails 2 'required: --html' "$data/small.json"

((faults == 0)) && echo "the page is in order"
