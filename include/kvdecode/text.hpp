// SPDX-License-Identifier: MIT
// <kvdecode/text.hpp> - tokenizers, streaming detokenization and chat templates. Needs nlohmann-json, PCRE2
// (8-bit) and utf8proc.
#pragma once

#include <kvdecode/text/chat_template.hpp>
#include <kvdecode/text/streaming_detokenizer.hpp>
#include <kvdecode/text/tokenizer.hpp>
#include <kvdecode/text/tokenizer_json.hpp>
#include <kvdecode/text/tokenizer_spec.hpp>
