# t9_build_info: an interface target that gives its users "t9_build.h" (version, commit, compiler, flags). The header is
# looked at on every build and rewritten only when it would differ, so an unchanged tree compiles nothing.

set(T9_GENERATED_DIR "${CMAKE_BINARY_DIR}/generated")
string(TOUPPER "${CMAKE_BUILD_TYPE}" t9_config)
string(STRIP "${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_${t9_config}}" t9_flags_text)
get_directory_property(t9_options COMPILE_OPTIONS)
list(JOIN t9_options " " t9_options_text)

set(t9_build_info_command
    "${CMAKE_COMMAND}"
    "-DOUT=${T9_GENERATED_DIR}/t9_build.h" "-DSOURCE_DIR=${CMAKE_SOURCE_DIR}"
    "-DVERSION=${PROJECT_VERSION}" "-DCOMPILER=${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}"
    "-DBUILD_TYPE=${CMAKE_BUILD_TYPE}" "-DFLAGS=${t9_flags_text} ${t9_options_text}"
    "-DSYSTEM=${CMAKE_SYSTEM_NAME} ${CMAKE_SYSTEM_PROCESSOR}"
    -P "${CMAKE_SOURCE_DIR}/cmake/write_build_info.cmake")
add_custom_target(t9_write_build_info
    COMMAND ${t9_build_info_command}
    BYPRODUCTS "${T9_GENERATED_DIR}/t9_build.h"
    COMMENT "Looking at the version and commit"
    VERBATIM)
# Once at configure time as well, for editors and clang-tidy.
execute_process(COMMAND ${t9_build_info_command})

add_library(t9_build_info INTERFACE)
target_include_directories(t9_build_info INTERFACE "${T9_GENERATED_DIR}")
add_dependencies(t9_build_info t9_write_build_info)
