# The libraries. Required ones stop the configuration with the command that installs them; optional ones are switched by
# T9_CRYPTO, T9_CURL, T9_EDIT and T9_SQLITE and seen in the code as T9_HAVE_… Without cmocka there are no tests.

find_package(PkgConfig)
if(NOT PKG_CONFIG_FOUND)
    message(FATAL_ERROR "pkg-config not found: run tools/get-deps build")
endif()

# t9_need(PREFIX spec): the imported target PkgConfig::PREFIX, or a clear end.
function(t9_need prefix spec)
    pkg_check_modules(${prefix} IMPORTED_TARGET GLOBAL "${spec}")
    if(NOT ${prefix}_FOUND)
        message(FATAL_ERROR "library missing or too old: ${spec}. Run tools/get-deps ${ARGN}")
    endif()
endfunction()

t9_need(MHD "libmicrohttpd>=0.9.75" build)
t9_need(UTF8PROC "libutf8proc" build)
t9_need(XXHASH "libxxhash" build)

if(T9_CRYPTO)
    t9_need(CRYPTO "libcrypto" "build, or configure with -DT9_CRYPTO=OFF")
    add_compile_definitions(T9_HAVE_CRYPTO=1)
endif()
if(T9_CURL)
    t9_need(CURL "libcurl>=7.66" "build, or configure with -DT9_CURL=OFF")
    add_compile_definitions(T9_HAVE_CURL=1)
endif()
if(T9_EDIT)
    t9_need(EDIT "libedit" "build, or configure with -DT9_EDIT=OFF")
    add_compile_definitions(T9_HAVE_EDIT=1)
endif()
if(T9_SQLITE)
    t9_need(SQLITE "sqlite3>=3.37" "build, or configure with -DT9_SQLITE=OFF")
endif()
if(T9_TESTS)
    # Who only wants the program need not have it; the targets that run tests get it first.
    pkg_check_modules(CMOCKA IMPORTED_TARGET GLOBAL "cmocka")
    pkg_check_modules(PCRE2 IMPORTED_TARGET GLOBAL "libpcre2-8") # what the pre-tokenizers are held to
    if(NOT CMOCKA_FOUND OR NOT PCRE2_FOUND)
        message(STATUS "cmocka or PCRE2 is missing: the tests are left out (tools/get-deps test gets both)")
        set(T9_TESTS OFF) # this time only; the option stays as it was
    endif()
endif()

# yyjson: the system's package where there is one, else the pinned source that tools/get-deps fetched.
find_package(yyjson QUIET)
if(yyjson_FOUND)
    add_library(t9_yyjson INTERFACE)
    target_link_libraries(t9_yyjson INTERFACE yyjson::yyjson)
else()
    file(GLOB yyjson_sources "${T9_DEPS_DIR}/yyjson-*/yyjson.c" "${T9_DEPS_DIR}/yyjson-*/src/yyjson.c")
    if(NOT yyjson_sources)
        message(FATAL_ERROR "yyjson found neither as a package nor in ${T9_DEPS_DIR}: run tools/get-deps build")
    endif()
    list(SORT yyjson_sources)
    list(GET yyjson_sources -1 yyjson_source)
    get_filename_component(yyjson_dir "${yyjson_source}" DIRECTORY)
    add_library(t9_yyjson STATIC "${yyjson_source}")
    target_include_directories(t9_yyjson SYSTEM PUBLIC "${yyjson_dir}")
    target_compile_options(t9_yyjson PRIVATE -w)
    if(T9_SANITIZE MATCHES "undefined")
        # Its inlined reader takes clang minutes with these checks; the address sanitizer stays on.
        target_compile_options(t9_yyjson PRIVATE -fno-sanitize=undefined)
    endif()
    target_link_libraries(t9_yyjson PUBLIC m)
endif()
