# SPDX-License-Identifier: MIT
# What each component needs and links, for a build of this repository and for the installed package alike.

# Looks for what `component` needs; what is not found goes, as one text, into the variable named by `missing_var`.
function(kvdecode_find_component component missing_var)
  set(io_needs nlohmann_json)
  set(text_needs nlohmann_json PCRE2 utf8proc)
  set(pipeline_needs ${text_needs})
  # target that a package brings; the Debian package that has it
  set(nlohmann_json_brings nlohmann_json::nlohmann_json nlohmann-json3-dev)
  set(PCRE2_brings PCRE2::8BIT libpcre2-dev)
  set(utf8proc_brings utf8proc::utf8proc libutf8proc-dev)

  list(PREPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_FUNCTION_LIST_DIR}")  # FindPCRE2, Findutf8proc
  set(missing)
  foreach(package IN LISTS ${component}_needs)
    list(GET ${package}_brings 0 target)
    list(GET ${package}_brings 1 debian_package)
    if(NOT TARGET ${target})
      find_package(${package} QUIET)
      if(NOT TARGET ${target})
        list(APPEND missing "${package} (Debian: ${debian_package})")
      endif()
    endif()
  endforeach()
  list(JOIN missing ", " missing)
  set(${missing_var} "${missing}" PARENT_SCOPE)
endfunction()

# Gives `target` the usage requirements of `component`.
function(kvdecode_link_component component target)
  set(native_links kvdecode::kvdecode)
  set(compiled_links kvdecode::native)
  set(io_links kvdecode::kvdecode nlohmann_json::nlohmann_json)
  set(text_links kvdecode::kvdecode nlohmann_json::nlohmann_json PCRE2::8BIT utf8proc::utf8proc)
  set(pipeline_links kvdecode::io kvdecode::text)

  set(scope INTERFACE)
  if(component STREQUAL "compiled")
    set(scope PUBLIC)  # objects are compiled as their users are
  endif()
  target_link_libraries(${target} ${scope} ${${component}_links})
  if(component STREQUAL "compiled")
    target_compile_definitions(${target} INTERFACE KVDECODE_USE_COMPILED)  # kvdecode.hpp then declares them
  elseif(component STREQUAL "native")
    separate_arguments(flags NATIVE_COMMAND "${KVDECODE_NATIVE_FLAGS}")
    target_compile_options(${target} INTERFACE ${flags})
  endif()
endfunction()

# Adds kvdecode::compiled, whose translation units lie in `include_dir`: some per scalar, for no compiler to need
# much time or memory at once.
function(kvdecode_add_compiled include_dir)
  set(sources)
  foreach(scalar IN ITEMS float double)
    foreach(part IN ITEMS linear k_quants code_books int8 cache_formats decoders model)
      list(APPEND sources "${include_dir}/kvdecode/compiled_${scalar}_${part}.cpp")
    endforeach()
  endforeach()
  add_library(kvdecode_compiled OBJECT EXCLUDE_FROM_ALL ${sources})
  add_library(kvdecode::compiled ALIAS kvdecode_compiled)
  kvdecode_link_component(compiled kvdecode_compiled)
endfunction()
