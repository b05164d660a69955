# The page at "/": built from web/ with Node, and compiled into the program as a table of files.
#
# Included where the table is compiled. Sets T9_PAGE_SOURCE to the C file that holds it, and the global property T9_PAGE
# to whether it is the real one. Nothing is fetched here: the packages that the page is built from are in
# ${T9_DEPS_DIR}/web, where `tools/get-deps web` puts them from web/package-lock.json. Without them, or without Node, the
# program says at "/" how to get the page.

set(T9_WEB AUTO CACHE STRING "the page at /: AUTO (when Node and its packages are there), ON (or stop), OFF")
set_property(CACHE T9_WEB PROPERTY STRINGS AUTO ON OFF)
if(NOT T9_WEB MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "T9_WEB is ${T9_WEB}; it must be AUTO, ON or OFF")
endif()

set(T9_PAGE_SOURCE "${CMAKE_SOURCE_DIR}/src/http/page_none.c")
set(t9_web_packages "${T9_DEPS_DIR}/web")
find_program(T9_NODE NAMES node nodejs)

# Why there is no page; empty when there can be one.
function(t9_web_lack out)
    set(lack "")
    if(NOT T9_NODE)
        set(lack "Node is missing")
    else()
        execute_process(COMMAND "${T9_NODE}" --version OUTPUT_VARIABLE version ERROR_QUIET
                        OUTPUT_STRIP_TRAILING_WHITESPACE)
        string(REGEX REPLACE "^v" "" version "${version}")
        if(NOT version VERSION_GREATER_EQUAL 18)
            set(lack "Node is ${version}, older than 18")
        elseif(NOT EXISTS "${t9_web_packages}/node_modules/.package-lock.json")
            set(lack "its packages are missing")
        else()
            file(SHA256 "${CMAKE_SOURCE_DIR}/web/package-lock.json" want)
            file(SHA256 "${t9_web_packages}/package-lock.json" have)
            if(NOT want STREQUAL have)
                set(lack "its packages are of another version")
            endif()
        endif()
    endif()
    set(${out} "${lack}" PARENT_SCOPE)
endfunction()

if(NOT T9_WEB STREQUAL "OFF")
    # Configures again when tools/get-deps web has brought them.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/web/package-lock.json")
    t9_web_lack(t9_lack)
    if(t9_lack STREQUAL "")
        set_property(GLOBAL PROPERTY T9_PAGE ON)
        set(T9_PAGE_SOURCE "${CMAKE_BINARY_DIR}/generated/page_files.c")
        file(GLOB_RECURSE t9_web_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/web/src/*")
        add_custom_command(
            OUTPUT "${T9_PAGE_SOURCE}"
            COMMAND "${T9_NODE}" "${CMAKE_SOURCE_DIR}/web/build.mjs" --packages "${t9_web_packages}"
                    --version "${PROJECT_VERSION}" --c "${T9_PAGE_SOURCE}"
            DEPENDS ${t9_web_sources} "${CMAKE_SOURCE_DIR}/web/build.mjs" "${t9_web_packages}/package-lock.json"
            COMMENT "Building the page"
            VERBATIM)
    elseif(T9_WEB STREQUAL "ON")
        message(FATAL_ERROR "the page can't be built: ${t9_lack}. Run tools/get-deps web")
    else()
        message(STATUS "the page is left out: ${t9_lack} (tools/get-deps web gets what it needs)")
    endif()
endif()
