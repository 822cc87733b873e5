# SPDX-License-Identifier: MIT
# bench/*_bench.cpp and bench_main.cpp -> one program, <build>/bench/kvdecode_bench.
find_package(benchmark CONFIG REQUIRED)

file(GLOB bench_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/*_bench.cpp")
if(bench_sources)
  add_executable(kvdecode_bench "${PROJECT_SOURCE_DIR}/bench/bench_main.cpp" ${bench_sources})
  target_link_libraries(kvdecode_bench PRIVATE kvdecode::native benchmark::benchmark)
  # g++ 12 warns of its own AVX-512 intrinsics inside Eigen's products, which are the baseline here.
  target_compile_options(kvdecode_bench PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized$<SEMICOLON>-Wno-uninitialized>)
  if(TARGET kvdecode::compiled)
    target_link_libraries(kvdecode_bench PRIVATE kvdecode::compiled)
  endif()
  set_target_properties(kvdecode_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY "$<1:${PROJECT_BINARY_DIR}/bench>")

  # `cmake --build build --target bench_report` measures, and leaves <build>/bench/report.html: all that the program
  # measures by itself, and of whole models every format, depths and batches with most threads.
  cmake_host_system_information(RESULT n_cores QUERY NUMBER_OF_LOGICAL_CORES)
  set(most_threads 1)
  while(most_threads LESS_EQUAL n_cores)
    math(EXPR doubled "2 * ${most_threads}")
    if(doubled GREATER n_cores)
      break()
    endif()
    set(most_threads ${doubled})
  endwhile()
  set(model_family "^model/decode/smollm2-135m")
  string(JOIN "|" model_filter
    "${model_family}/[^/]*/[^/]*/depth:0/batch:1/threads:${most_threads}/"
    "${model_family}/q8_0/exact/depth:[0-9]*/batch:1/threads:${most_threads}/"
    "${model_family}/(q8_0|q4_0)/exact/depth:0/batch:[0-9]*/threads:${most_threads}/")
  # The system's first: it has Debian's python3-matplotlib.
  find_program(KVDECODE_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH DOC "A Python that has matplotlib, for bench/plot.py")
  find_program(KVDECODE_PYTHON python3)
  mark_as_advanced(KVDECODE_PYTHON)
  set(bench_json "${PROJECT_BINARY_DIR}/bench/bench.json")
  set(models_json "${PROJECT_BINARY_DIR}/bench/models.json")
  add_custom_target(bench_report
    COMMAND "${KVDECODE_PYTHON}" -c "import matplotlib"  # Debian: python3-matplotlib; before minutes of measuring
    COMMAND kvdecode_bench "--benchmark_out=${bench_json}" --benchmark_out_format=json
    COMMAND kvdecode_bench "--benchmark_filter=${model_filter}" "--benchmark_out=${models_json}"
            --benchmark_out_format=json
    COMMAND "${KVDECODE_PYTHON}" "${PROJECT_SOURCE_DIR}/bench/plot.py" "${bench_json}" "${models_json}"
            --html "${PROJECT_BINARY_DIR}/bench/report.html" --figures "${PROJECT_BINARY_DIR}/bench/figures"
    USES_TERMINAL VERBATIM)
endif()

# bench/core_limits.cpp, bench_model.cpp -> <build>/bench/, where what they read arguments, and models, with is there.
find_package(CLI11 CONFIG QUIET)
if(TARGET CLI11::CLI11)
  add_executable(core_limits "${PROJECT_SOURCE_DIR}/bench/core_limits.cpp")
  target_link_libraries(core_limits PRIVATE kvdecode::native CLI11::CLI11)
  if(TARGET kvdecode::compiled)
    target_link_libraries(core_limits PRIVATE kvdecode::compiled)
  endif()
  set_target_properties(core_limits PROPERTIES RUNTIME_OUTPUT_DIRECTORY "$<1:${PROJECT_BINARY_DIR}/bench>")
endif()
if(TARGET kvdecode::pipeline AND TARGET CLI11::CLI11)
  add_executable(bench_model "${PROJECT_SOURCE_DIR}/bench/bench_model.cpp")
  target_link_libraries(bench_model PRIVATE kvdecode::pipeline kvdecode::native CLI11::CLI11)
  if(TARGET kvdecode::compiled)
    target_link_libraries(bench_model PRIVATE kvdecode::compiled)
  endif()
  set_target_properties(bench_model PROPERTIES RUNTIME_OUTPUT_DIRECTORY "$<1:${PROJECT_BINARY_DIR}/bench>")
endif()
