// SPDX-License-Identifier: MIT
// <kvdecode/pipeline.hpp> - from a model's files to its text: everything. Needs nlohmann-json, PCRE2 (8-bit)
// and utf8proc.
#pragma once

#include <kvdecode/io.hpp>
#include <kvdecode/kvdecode.hpp>
#include <kvdecode/pipeline/chat.hpp>
#include <kvdecode/pipeline/chat_template_source.hpp>
#include <kvdecode/pipeline/conversation.hpp>
#include <kvdecode/pipeline/generate_text.hpp>
#include <kvdecode/pipeline/gguf_pre_tokenizers.hpp>
#include <kvdecode/pipeline/gguf_tokenizer.hpp>
#include <kvdecode/pipeline/load_model.hpp>
#include <kvdecode/pipeline/text_model.hpp>
#include <kvdecode/text.hpp>
