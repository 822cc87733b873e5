# SPDX-License-Identifier: MIT
# A header as Doxygen is to read it, line for line. The comment at the top, `// <path> - what this is`, becomes the
# file's. What a comment indents by three stays as it is laid out. `<` in a comment begins no tag, `::` behind `>` no
# link. The inline namespace goes: its name says how a program was compiled.
NR == 1 { line = "/// @file"; is_top = 1; next }
NR == 2 { sub(/^\/\/ <[^>]*> - /, "// ") }
!/^\/\// { is_top = 0 }
is_top { $0 = "/" $0 }
{ sub(/::inline KVDECODE_ABI/, "") }
match($0, /\/\/\/<?/) {
  comment = substr($0, RSTART + RLENGTH)
  gsub(/</, "\\<", comment)
  gsub(/"\\</, "\"<", comment)
  gsub(/>::/, ">\\::", comment)
  $0 = substr($0, 1, RSTART + RLENGTH - 1) comment
}
# Where laid-out lines begin and end: `<pre>` before the first, `</pre>` after the last.
{
  was_laid_out = is_laid_out
  is_laid_out = was_laid_out ? /^ *\/\/\/  / : /^ *\/\/\/   [^ ]/
  if (was_laid_out && !is_laid_out) line = line "</pre>"
  if (is_laid_out && !was_laid_out) sub(/\/\/\/ /, "/// <pre>")
  print line
  line = $0
}
END { print line }
