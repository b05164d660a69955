# Helper functions for the modules' own CMakeLists.txt files.
#
#   t9_module(name SOURCES a.c … [LINK t9_base …] [DEFINES X=1 …])   static library t9_<name>
#   t9_test(name SOURCES a_test.c … [LINK t9_base …] [LABELS l …] [TIMEOUT s])
#                                                                   cmocka program, registered in ctest under its name
#   t9_fuzz(name SOURCES a_fuzz.c [LINK t9_gguf …] [SEEDS dir])     libFuzzer program, only with T9_FUZZ

function(t9_module name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK;DEFINES")
    if(arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "t9_module(${name}): unknown ${arg_UNPARSED_ARGUMENTS}")
    endif()
    add_library(t9_${name} STATIC ${arg_SOURCES})
    target_link_libraries(t9_${name} PUBLIC ${arg_LINK} t9_flags)
    target_compile_definitions(t9_${name} PRIVATE ${arg_DEFINES})
endfunction()

function(t9_test name)
    if(NOT T9_TESTS)
        return()
    endif()
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;LINK;DEFINES;LABELS")
    if(arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "t9_test(${name}): unknown ${arg_UNPARSED_ARGUMENTS}")
    endif()
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 300)
    endif()
    add_executable(${name} ${arg_SOURCES})
    target_link_libraries(${name} PRIVATE ${arg_LINK} t9_flags PkgConfig::CMOCKA)
    target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}/tests")
    target_compile_definitions(${name} PRIVATE
        "T9_FIXTURES_DIR=\"${T9_FIXTURES}\"" "T9_TEST_DATA_DIR=\"${CMAKE_SOURCE_DIR}/tests/data\"" ${arg_DEFINES})
    add_test(NAME ${name} COMMAND ${name})
    # cmocka has no notion of a wholly skipped program: one that skipped everything says so by exit code 77.
    set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} SKIP_RETURN_CODE 77)
    if(arg_LABELS)
        set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}")
    endif()
endfunction()

function(t9_fuzz name)
    if(NOT T9_FUZZ)
        return()
    endif()
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "SEEDS" "SOURCES;LINK")
    if(arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "t9_fuzz(${name}): unknown ${arg_UNPARSED_ARGUMENTS}")
    endif()
    add_executable(${name} ${arg_SOURCES})
    target_link_libraries(${name} PRIVATE ${arg_LINK} t9_flags)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    # What the fuzzer finds new is kept in the build folder, so a second run starts where the first one ended.
    set(corpus "${CMAKE_BINARY_DIR}/corpus/${name}")
    file(MAKE_DIRECTORY "${corpus}")
    set(seeds "")
    if(arg_SEEDS)
        get_filename_component(seeds "${arg_SEEDS}" ABSOLUTE)
        if(NOT EXISTS "${seeds}")
            message(FATAL_ERROR "t9_fuzz(${name}): no seeds at ${seeds}")
        endif()
    endif()
    add_test(NAME ${name}
             COMMAND ${name} -max_total_time=${T9_FUZZ_SECONDS} -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
                     "-artifact_prefix=${CMAKE_BINARY_DIR}/" "${corpus}" ${seeds})
    math(EXPR limit "${T9_FUZZ_SECONDS} + 120")
    set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT ${limit})
endfunction()
