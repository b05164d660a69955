# Compiler flags for our own code. They live on the interface target t9_flags, which t9_module() and t9_test() link, so
# that third-party sources built here (t9_yyjson) are not touched by our warnings.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
# assert() is not used on data, so nothing needs NDEBUG; T9_DEBUG alone turns the programmer checks on.
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g -fno-omit-frame-pointer")

# Numerics: results must not depend on what the compiler chooses to fuse. Fused multiply-add is always written out.
add_compile_options(-ffp-contract=off -fno-math-errno -fno-common)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
    # Only kernel files add more than this, per file.
    add_compile_options(-march=x86-64-v2)
endif()
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    # Empty, so that a file which also says "#define _GNU_SOURCE" redefines it to the same thing.
    add_compile_definitions("_GNU_SOURCE=")
elseif(APPLE)
    add_compile_definitions(_DARWIN_C_SOURCE)
endif()

if(T9_SANITIZE)
    add_compile_options("-fsanitize=${T9_SANITIZE}" -fno-omit-frame-pointer)
    add_link_options("-fsanitize=${T9_SANITIZE}")
    if(T9_SANITIZE MATCHES "undefined")
        add_compile_options(-fno-sanitize-recover=undefined)
    endif()
endif()
if(T9_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "T9_FUZZ needs clang (libFuzzer); configure a fresh folder with CC=clang")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_package(Threads REQUIRED)

add_library(t9_flags INTERFACE)
target_compile_options(t9_flags INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wvla -Wundef -Wstrict-prototypes -Wmissing-prototypes
    -Wwrite-strings -Wformat=2 -Wpointer-arith -Wimplicit-fallthrough -Wcast-qual -Wdouble-promotion)
if(T9_WERROR)
    target_compile_options(t9_flags INTERFACE -Werror)
endif()
target_compile_definitions(t9_flags INTERFACE $<$<CONFIG:Debug>:T9_DEBUG>)
target_include_directories(t9_flags INTERFACE "${CMAKE_SOURCE_DIR}/src")
target_link_libraries(t9_flags INTERFACE Threads::Threads m)
