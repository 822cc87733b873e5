// SPDX-License-Identifier: MIT
// <kvdecode/io.hpp> - everything that reads and writes files. Needs nlohmann-json.
#pragma once

#include <kvdecode/io/architectures.hpp>
#include <kvdecode/io/atomic_file.hpp>
#include <kvdecode/io/gguf.hpp>
#include <kvdecode/io/gguf_architectures.hpp>
#include <kvdecode/io/gguf_metadata.hpp>
#include <kvdecode/io/gguf_model.hpp>
#include <kvdecode/io/gguf_tensor_binder.hpp>
#include <kvdecode/io/gguf_type.hpp>
#include <kvdecode/io/huge_pages.hpp>
#include <kvdecode/io/huggingface_config.hpp>
#include <kvdecode/io/huggingface_model.hpp>
#include <kvdecode/io/json.hpp>
#include <kvdecode/io/json_object.hpp>
#include <kvdecode/io/load_report.hpp>
#include <kvdecode/io/loaded_model.hpp>
#include <kvdecode/io/mapped_file.hpp>
#include <kvdecode/io/page_in.hpp>
#include <kvdecode/io/safetensors.hpp>
#include <kvdecode/io/safetensors_dtype.hpp>
#include <kvdecode/io/safetensors_writer.hpp>
#include <kvdecode/io/session.hpp>
#include <kvdecode/io/tensor_binder.hpp>
