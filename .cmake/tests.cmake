# SPDX-License-Identifier: MIT
# All that `ctest` runs. Labels: the layers (core, kernels, …), static, headers, form, docs, examples, bench, consumer, budget.
find_package(doctest CONFIG REQUIRED)
enable_testing()

set(tests_dir "${PROJECT_SOURCE_DIR}/tests")
set(tools_dir "${tests_dir}/tools")
set(example_data_dir "${PROJECT_SOURCE_DIR}/examples/data")
set(core_umbrella "${include_dir}/kvdecode/kvdecode.hpp")
set(pipeline_umbrella "${include_dir}/kvdecode/pipeline.hpp")

# ---- tests/LAYER/*_test.cpp -> kvdecode_LAYER_tests -------------------------------------------------------

add_library(kvdecode_doctest_main OBJECT EXCLUDE_FROM_ALL "${tests_dir}/doctest_main.cpp")
target_link_libraries(kvdecode_doctest_main PRIVATE doctest::doctest)
target_compile_features(kvdecode_doctest_main PRIVATE cxx_std_20)

file(GLOB test_sources CONFIGURE_DEPENDS "${tests_dir}/*/*_test.cpp")
set(layers)
foreach(source IN LISTS test_sources)
  cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${tests_dir}" OUTPUT_VARIABLE file)
  if(file MATCHES "${KVDECODE_TEST_FILTER}" AND NOT file MATCHES "^static/" AND
     NOT file MATCHES "${KVDECODE_TEST_SKIP}")
    cmake_path(GET file PARENT_PATH layer)
    list(APPEND layers ${layer})
    list(APPEND ${layer}_test_sources "${source}")
  endif()
endforeach()
list(REMOVE_DUPLICATES layers)

foreach(layer IN LISTS layers)
  set(target kvdecode_${layer}_tests)
  add_executable(${target} ${${layer}_test_sources})
  target_include_directories(${target} PRIVATE "${tests_dir}")
  target_link_libraries(${target} PRIVATE kvdecode::native doctest::doctest kvdecode_doctest_main)
  # Under sanitizers the unrolled kernels of all formats are minutes and gigabytes: a test then compiles its own.
  if(TARGET kvdecode::compiled AND NOT KVDECODE_SANITIZE)
    target_link_libraries(${target} PRIVATE kvdecode::compiled)
  endif()
  if(layer MATCHES "^(io|text)$")
    target_link_libraries(${target} PRIVATE kvdecode::${layer})
  elseif(layer MATCHES "^(pipeline|golden|examples)$")
    target_link_libraries(${target} PRIVATE kvdecode::pipeline)
  endif()
  target_compile_definitions(${target} PRIVATE
    KVDECODE_TEST_DATA_DIR="${tests_dir}/data"
    KVDECODE_EXAMPLE_DATA_DIR="${example_data_dir}"
    $<$<BOOL:${KVDECODE_EXHAUSTIVE}>:KVDECODE_EXHAUSTIVE=1>)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "$<1:${PROJECT_BINARY_DIR}/tests>")
  add_test(NAME ${layer} COMMAND ${target})
  set_tests_properties(${layer} PROPERTIES LABELS ${layer})
endforeach()

# A filtered build is for the files it names; all that follows is about the whole.
if(KVDECODE_TEST_FILTER)
  return()
endif()

# ---- tests/static: *.cpp compile, fail/*.cpp do not --------------------------------------------------------

file(GLOB static_sources CONFIGURE_DEPENDS "${tests_dir}/static/*.cpp")
if(static_sources)
  add_library(kvdecode_static_tests OBJECT ${static_sources})
  target_include_directories(kvdecode_static_tests PRIVATE "${tests_dir}")
  target_link_libraries(kvdecode_static_tests PRIVATE kvdecode::native kvdecode::pipeline)
endif()

file(GLOB fail_sources CONFIGURE_DEPENDS "${tests_dir}/static/fail/*.cpp")
set(include_dirs "$<TARGET_PROPERTY:kvdecode,INTERFACE_INCLUDE_DIRECTORIES>"
                 "$<TARGET_PROPERTY:Eigen3::Eigen,INTERFACE_INCLUDE_DIRECTORIES>" "${tests_dir}")
foreach(source IN LISTS fail_sources)
  cmake_path(GET source STEM name)
  add_test(NAME static.fail.${name} COMMAND_EXPAND_LISTS
           COMMAND "${tools_dir}/check_fails.sh" "${source}"
                   "${CMAKE_CXX_COMPILER}" -std=c++20 "-isystem$<JOIN:${include_dirs},;-isystem>")
  set_tests_properties(static.fail.${name} PROPERTIES LABELS static)
endforeach()

# ---- Headers: each alone; all of them twice in one program -------------------------------------------------

if(PROJECT_IS_TOP_LEVEL)
  cmake_host_system_information(RESULT n_cores QUERY NUMBER_OF_LOGICAL_CORES)
  add_test(NAME headers.alone
           COMMAND "${CMAKE_COMMAND}" --build "${PROJECT_BINARY_DIR}" --target all_verify_interface_header_sets
                   --parallel ${n_cores})
  set_tests_properties(headers.alone PROPERTIES LABELS headers RUN_SERIAL ON)
endif()

list(TRANSFORM all_headers REPLACE "^${include_dir}/(.*)$" "#include <\\1>" OUTPUT_VARIABLE includes)
list(LENGTH includes n_headers)
list(JOIN includes "\n" includes)
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/tests/headers/every_header.hpp"
     CONTENT "@includes@\n\ninline constexpr int kNHeaders = @n_headers@;\n" @ONLY)
add_executable(kvdecode_headers_tests "${tests_dir}/headers/first.cpp" "${tests_dir}/headers/second.cpp")
target_include_directories(kvdecode_headers_tests PRIVATE "${PROJECT_BINARY_DIR}/tests/headers")
target_link_libraries(kvdecode_headers_tests PRIVATE kvdecode::pipeline)
set_target_properties(kvdecode_headers_tests PROPERTIES RUNTIME_OUTPUT_DIRECTORY "$<1:${PROJECT_BINARY_DIR}/tests>")
add_test(NAME headers.two_units COMMAND kvdecode_headers_tests)
set_tests_properties(headers.two_units PROPERTIES LABELS headers)

# ---- Form: layering, README, and the checkers themselves ---------------------------------------------------

add_test(NAME form.layering COMMAND "${tools_dir}/check_layering.sh")
add_test(NAME form.readme COMMAND "${tools_dir}/check_readme.sh")
add_test(NAME form.selftest COMMAND "${tools_dir}/selftest.sh" "${CMAKE_CXX_COMPILER}")
set_tests_properties(form.layering form.readme form.selftest PROPERTIES LABELS form)

if(TARGET docs)
  add_test(NAME docs.no_warnings COMMAND "${CMAKE_COMMAND}" --build "${PROJECT_BINARY_DIR}" --target docs)
  set_tests_properties(docs.no_warnings PROPERTIES LABELS docs FIXTURES_SETUP docs)
  # Names without the inline namespace, the comment of the file, and its table as it is laid out.
  add_test(NAME docs.pages COMMAND "${CMAKE_COMMAND}" -E cat "${PROJECT_BINARY_DIR}/docs/cache_2concepts_8hpp.html")
  set_tests_properties(docs.pages PROPERTIES LABELS docs FIXTURES_REQUIRED docs
                       PASS_REGULAR_EXPRESSION ">kvdecode::KvCache<.*A key-value cache.*<pre>  ContiguousCache      all memory at once")
endif()

# ---- Every example program, on the model that ships --------------------------------------------------------

set(shipped_model examples/data/tiny-shakespeare)
if(EXISTS "${PROJECT_SOURCE_DIR}/${shipped_model}/config.json")
  set(compare_arguments --max-new-tokens 48)
  set(cache_formats_arguments --windows 1)
  set(generate_arguments ${shipped_model} --prompt "Once upon a time" --max-new-tokens 16
                         --cache-format int8/had_int4)
  set(logits_arguments ${shipped_model} --tokens 1,2,3 --greedy 4
                       --output "${PROJECT_BINARY_DIR}/tests/logits.safetensors")
  set(inspect_arguments ${shipped_model} --tensors --measure)
  set(conversations chat)  # programs that read what to do; they have a script
  file(GLOB tutorial_pages CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/examples/README*.md")
  foreach(program IN LISTS example_programs)
    if(program IN_LIST conversations)
      continue()
    endif()
    if(program MATCHES "^[0-9][0-9]_")  # the tutorial: its pages show what each program prints
      add_test(NAME examples.${program}
               COMMAND "${tools_dir}/check_output.sh" $<TARGET_FILE:${program}> ${tutorial_pages}
               WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    else()
      add_test(NAME examples.${program} COMMAND ${program} ${${program}_arguments}
               WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    endif()
    set_tests_properties(examples.${program} PROPERTIES LABELS examples)
  endforeach()
  if(TARGET inspect)
    set_tests_properties(examples.inspect PROPERTIES
                         PASS_REGULAR_EXPRESSION "BF16 +56 tensors.*LlamaForCausalLM.*f32 +3.00 KiB +1.50 MiB.*int8/had_int4 [^\n]*recommended.*over files and cache")
  endif()
  if(TARGET logits AND TARGET generate AND TARGET compare)
    add_test(NAME examples.failures
             COMMAND "${tools_dir}/check_programs.sh" "${PROJECT_BINARY_DIR}/examples" "${PROJECT_SOURCE_DIR}/${shipped_model}")
    set_tests_properties(examples.failures PROPERTIES LABELS examples)
  endif()
  if(TARGET chat)
    add_test(NAME examples.chat
             COMMAND "${tools_dir}/check_chat.sh" $<TARGET_FILE:chat> "${PROJECT_SOURCE_DIR}/${shipped_model}")
    set_tests_properties(examples.chat PROPERTIES LABELS examples)
  endif()
endif()

if(TARGET kvdecode_bench)
  add_test(NAME bench.smoke COMMAND "${tools_dir}/bench_smoke.sh" $<TARGET_FILE:kvdecode_bench>)
  set_tests_properties(bench.smoke PROPERTIES LABELS bench)
  if(KVDECODE_PYTHON)
    add_test(NAME bench.plot
             COMMAND "${tools_dir}/check_plot.sh" "${KVDECODE_PYTHON}" "${PROJECT_SOURCE_DIR}/bench/plot.py"
                     "${tests_dir}/data/bench" "${PROJECT_BINARY_DIR}/tests/plot")
    set_tests_properties(bench.plot PROPERTIES LABELS bench SKIP_RETURN_CODE 77)
  endif()
endif()
if(TARGET core_limits)
  add_test(NAME bench.core_limits COMMAND "${tools_dir}/check_core_limits.sh" $<TARGET_FILE:core_limits>)
  set_tests_properties(bench.core_limits PROPERTIES LABELS bench)
endif()
if(TARGET bench_model AND EXISTS "${PROJECT_SOURCE_DIR}/${shipped_model}/config.json")
  add_test(NAME bench.model
           COMMAND "${tools_dir}/check_bench_model.sh" $<TARGET_FILE:bench_model>
                   "${PROJECT_SOURCE_DIR}/${shipped_model}" "${CMAKE_COMMAND}")
  set_tests_properties(bench.model PROPERTIES LABELS bench)
endif()

# ---- Consumers: installed, add_subdirectory, FetchContent; the core alone, and with components -------------

function(kvdecode_add_consumer_test name how components absent)
  add_test(NAME consumer.${name}.${how}
           COMMAND "${CMAKE_COMMAND}" "-DHOW=${how}" "-DCOMPONENTS=${components}" "-DABSENT=${absent}"
                   "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DBUILD=${PROJECT_BINARY_DIR}"
                   "-DWORK=${PROJECT_BINARY_DIR}/tests/consumer/${name}.${how}"
                   "-DCOMPILER=${CMAKE_CXX_COMPILER}" -P "${tests_dir}/consumer/run.cmake")
  set_tests_properties(consumer.${name}.${how} PROPERTIES LABELS consumer)
endfunction()

foreach(how IN ITEMS installed subdirectory fetch_content)
  if(how STREQUAL "installed" AND NOT KVDECODE_INSTALL)
    continue()
  endif()
  # What is compiled once takes minutes, and but for an installed package it is defined as it is for these tests.
  set(and_compiled)
  if(TARGET kvdecode::compiled AND how STREQUAL "installed")
    set(and_compiled ",compiled")
  endif()
  if(EXISTS "${core_umbrella}")
    # The core must not look for what it does not need.
    kvdecode_add_consumer_test(core ${how} "" "nlohmann_json,PCRE2,utf8proc,doctest,benchmark,CLI11")
  endif()
  if(EXISTS "${pipeline_umbrella}")
    kvdecode_add_consumer_test(pipeline ${how} "pipeline${and_compiled}" "doctest,benchmark,CLI11")
  endif()
endforeach()
if(EXISTS "${pipeline_umbrella}" AND KVDECODE_INSTALL)
  kvdecode_add_consumer_test(io installed io "PCRE2,utf8proc,doctest,benchmark,CLI11")
  kvdecode_add_consumer_test(missing installed text "utf8proc")
  set_tests_properties(consumer.missing.installed PROPERTIES
                       PASS_REGULAR_EXPRESSION "component text needs utf8proc \\(Debian: libutf8proc-dev\\)")
endif()

# ---- Compile time -----------------------------------------------------------------------------------------

find_program(KVDECODE_BUDGET_COMPILER g++ DOC "The compiler that the compile-time budget is measured with")
mark_as_advanced(KVDECODE_BUDGET_COMPILER)
if(EXISTS "${core_umbrella}" AND KVDECODE_BUDGET_COMPILER AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_test(NAME budget.compile_time
           COMMAND "${tools_dir}/compile_budget.sh" "${KVDECODE_BUDGET_COMPILER}"
                   $<TARGET_PROPERTY:Eigen3::Eigen,INTERFACE_INCLUDE_DIRECTORIES>)
  set_tests_properties(budget.compile_time PROPERTIES LABELS budget RUN_SERIAL ON)
endif()
