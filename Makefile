# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# One Makefile. O=DIR build directory, V=1 verbose, SAN=1 sanitizers in the main binary, WERROR=1 as CI does.

O ?= build
V ?= 0
SAN ?= 0
WERROR ?= 1
PREFIX ?= /usr/local
DESTDIR ?=

CC ?= gcc
CLANG ?= clang
# The first one that works: Ubuntu's is a wrapper that fails on kernels for which no package is installed.
BPFTOOL ?= $(shell for b in $$(PATH=$$PATH:/usr/sbin:/sbin command -v bpftool) /usr/lib/linux-tools/*/bpftool \
	/usr/lib/linux-tools-*/bpftool; do $$b version >/dev/null 2>&1 && echo $$b && exit; done; echo bpftool)
PYTHON ?= /usr/bin/python3

# For another machine: ARCH=arm64 CC=aarch64-linux-gnu-gcc SYSROOT=DIR, a folder with its libraries and headers.
SYSROOT ?=
MACHINE := $(or $(ARCH),$(shell uname -m))
BPF_ARCH := $(if $(filter aarch64 arm64,$(MACHINE)),arm64,x86)
ifneq ($(SYSROOT),)
override CC += --sysroot=$(SYSROOT)
endif
MULTIARCH := $(shell $(CC) -print-multiarch 2>/dev/null)
VERSION := 0.1.0

Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-8s %s\n' '$(1)' '$(2)';)

WARN := -Wall -Wextra $(if $(filter 1,$(WERROR)),-Werror)
CPPFLAGS += -D_GNU_SOURCE -DPERFBPF_VERSION='"$(VERSION)"' -I. -Iuser -I$(O)/gen
CFLAGS ?= -O2 -g
ALL_CFLAGS = -std=c11 $(WARN) -Wstrict-prototypes -Wmissing-prototypes -fno-strict-aliasing -fstack-protector-strong $(CFLAGS)
SAN_FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
ifeq ($(SAN),1)
ALL_CFLAGS += $(SAN_FLAGS)
LDFLAGS += $(SAN_FLAGS)
endif
BPF_CFLAGS := -g -O2 -target bpf -mcpu=v3 $(WARN) -Wno-missing-declarations -I. -Ivmlinux -Ibpf

# Static where the distribution ships an archive that links by itself: cJSON has none, libelf's needs parts of elfutils.
WIRE_LIBS := -lnghttp2 -lbrotlidec -lbrotlicommon -lzstd
FILE_LIBS := -lcapstone -llzma -liberty
LIBS = -Wl,--wrap=bpf_btf_get_next_id -Wl,-Bstatic -lbpf $(FILE_LIBS) $(WIRE_LIBS) -Wl,-Bdynamic -lelf -lz -lcjson -lm

# The maps first: libbpf 1.1 links no reference to a map before its definition.
BPF_SRCS := bpf/emit.bpf.c $(filter-out bpf/emit.bpf.c,$(sort $(wildcard bpf/*.bpf.c)))
BPF_OBJS := $(BPF_SRCS:bpf/%.bpf.c=$(O)/bpf/%.bpf.o)
BASE_SRCS := $(sort $(wildcard user/base/*.c))
USER_SRCS := $(sort $(wildcard user/*.c user/*/*.c user/*/*/*.c))
USER_OBJS := $(USER_SRCS:%.c=$(O)/%.o)
SKEL := $(O)/gen/perfbpf.skel.h

.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: all clean help deps demo check check-headers check-layers check-format check-arm64 check-docs check-scenarios check-cases check-fuzz check-kills check-static check-unit check-valgrind check-viewers \
	check-arm64-user check-kernels check-soak bench install \
	uninstall format man FORCE

all: $(O)/perfbpf ## build build/perfbpf

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 18

# --- flag stamp: other flags rebuild everything ---------------------------------------------------------------------
STAMP := $(O)/.flags
$(STAMP): FORCE
	@mkdir -p $(O)
	@echo '$(CC) $(CPPFLAGS) $(ALL_CFLAGS) $(CLANG) $(BPF_CFLAGS) $(LDFLAGS)' > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# --- kernel side ----------------------------------------------------------------------------------------------------
$(O)/bpf/%.bpf.o: bpf/%.bpf.c $(STAMP)
	@mkdir -p $(@D)
	$(call say,CLANG,$@)$(CLANG) $(BPF_CFLAGS) -D__TARGET_ARCH_$(BPF_ARCH) -idirafter $(SYSROOT)/usr/include/$(MULTIARCH) -MMD -MP -c $< -o $@

$(O)/perfbpf.bpf.o: $(BPF_OBJS)
	$(call say,LINK,$@)$(BPFTOOL) gen object $@ $^

$(SKEL): $(O)/perfbpf.bpf.o
	@mkdir -p $(@D)
	$(call say,SKEL,$@)$(BPFTOOL) gen skeleton $< name perfbpf_bpf > $@

# --- user side ------------------------------------------------------------------------------------------------------
$(O)/%.o: %.c $(STAMP)
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

PROBES_OBJS := $(patsubst %.c,$(O)/%.o,$(wildcard user/attach/probes*.c))
$(PROBES_OBJS): $(SKEL)

$(O)/perfbpf: $(USER_OBJS)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

# --- unit tests: each links its module and base/ only, so that a back-edge does not link ------------------------------
# NAME: the sources besides tests/unit/test_NAME.c, tests/unit/harness.c and user/base/*.c
UNIT_base :=
UNIT_record := user/flow/record.c
UNIT_stream := user/flow/stream.c
UNIT_halves := user/flow/halves.c
UNIT_conn := user/flow/conn.c user/flow/conn_rival.c user/flow/conn_sock.c user/flow/hello.c user/flow/stream.c
UNIT_interest := user/flow/interest.c
UNIT_counters := user/flow/counters.c
UNIT_hello := user/flow/hello.c
UNIT_attempts := user/flow/attempts.c
UNIT_tunnels := user/flow/tunnels.c user/flow/attempts.c
UNIT_dns := user/flow/attempts.c user/flow/dns.c user/flow/dns_message.c
UNIT_shape := user/flow/db/shape.c user/flow/db/announce.c
UNIT_db := $(wildcard user/flow/db/*.c)
UNIT_postgres := $(UNIT_db)
UNIT_mysql := $(UNIT_db)
UNIT_redis := $(UNIT_db)
UNIT_sqlite := $(UNIT_db)
UNIT_sqlitefind := user/attach/sqlitefind.c $(wildcard user/attach/site*.c) user/attach/insn.c user/attach/insn_arm64.c user/attach/elf.c
UNIT_funcfind := user/attach/funcfind.c user/attach/debugdata.c user/attach/gotable.c user/symbol/demangle.c \
		 $(wildcard user/attach/site*.c) user/attach/insn.c user/attach/insn_arm64.c user/attach/elf.c
UNIT_names := $(sort $(UNIT_funcfind) $(UNIT_sqlitefind)) user/attach/allocfind.c user/symbol/elfsyms.c user/symbol/symtab.c
UNIT_functions := user/flow/functions.c
UNIT_overload := user/attach/overload.c
UNIT_ringahead := user/attach/ringahead.c
UNIT_wire := user/flow/wire.c user/flow/hello.c
UNIT_proc := user/flow/proc.c user/flow/proc_args.c user/flow/proc_catalogue.c
HTTP1_SRCS := $(wildcard user/flow/proto/http1*.c) user/flow/proto/queue.c user/flow/proto/http.c \
	user/flow/proto/ws_frame.c
UNIT_http1 := $(HTTP1_SRCS)
UNIT_http1_loss := $(HTTP1_SRCS) $(UNIT_conn)
HTTP2_SRCS := $(wildcard user/flow/proto/http2*.c) user/flow/proto/queue.c user/flow/proto/hpack.c user/flow/proto/http.c
UNIT_http2 := $(HTTP2_SRCS)
WS_SRCS := user/flow/proto/ws.c user/flow/proto/ws_frame.c user/flow/proto/ws_inflate.c
UNIT_proto := user/flow/proto/proto.c user/flow/proto/sockets.c user/flow/proto/ws_probe.c $(WS_SRCS) $(sort $(HTTP1_SRCS) $(HTTP2_SRCS))
UNIT_sockets := $(UNIT_proto)
UNIT_hpack := user/flow/proto/hpack.c user/flow/proto/http.c
DECODE_SRCS := user/flow/proto/decode.c user/flow/proto/decode_coder.c
UNIT_decode := $(DECODE_SRCS)
UNIT_LIBS_decode := -lbrotlienc
UNIT_sse := user/flow/proto/sse.c
UNIT_ndjson := user/flow/proto/ndjson.c
UNIT_jsonarray := user/flow/proto/jsonarray.c
UNIT_eventstream := user/flow/proto/eventstream.c
UNIT_ws := $(WS_SRCS)
UNIT_ws_probe := user/flow/proto/ws_probe.c $(WS_SRCS)
UNIT_jsonscan := user/flow/llm/jsonscan.c
UNIT_dialect := $(wildcard user/flow/llm/dialect*.c) user/flow/llm/call.c user/flow/proto/http.c
UNIT_exchange := $(wildcard user/flow/llm/*.c) $(DECODE_SRCS) user/flow/proto/sse.c user/flow/proto/http.c \
	user/flow/proto/ndjson.c user/flow/proto/jsonarray.c user/flow/proto/eventstream.c
UNIT_exchange_wire := $(UNIT_exchange)
UNIT_suffix := $(UNIT_exchange)
UNIT_beside := $(UNIT_exchange) $(wildcard user/flow/agent/*.c)
UNIT_exchange_ws := $(UNIT_exchange)
UNIT_mcp := $(UNIT_exchange)
UNIT_route := user/flow/http/route.c user/flow/http/graphql.c user/flow/llm/jsonscan.c user/flow/llm/text.c
UNIT_graphql := $(UNIT_route)
UNIT_operations := $(wildcard user/flow/http/*.c) user/flow/llm/jsonscan.c user/flow/llm/text.c user/flow/llm/client.c \
	user/flow/llm/ended.c user/flow/llm/call.c $(HTTP1_SRCS)
UNIT_walltime := user/flow/agent/walltime.c
UNIT_verdict := user/flow/agent/verdict.c user/flow/agent/walltime.c
UNIT_agents := $(wildcard user/flow/agent/*.c) user/flow/llm/call.c
TRACE_SRCS := $(wildcard user/flow/trace*.c)
SPAN_SRCS := $(wildcard user/flow/span*.c) user/flow/attempts.c user/flow/llm/call.c user/flow/llm/mcp_call.c $(wildcard user/flow/agent/*.c)
UNIT_span := $(SPAN_SRCS)
UNIT_trace := $(TRACE_SRCS) user/flow/counters.c user/flow/functions.c $(SPAN_SRCS) user/flow/proc.c user/flow/proc_args.c user/flow/proc_catalogue.c
UNIT_writer := user/flow/writer.c
UNIT_op := $(wildcard user/flow/op/*.c)
UNIT_view := $(wildcard user/view/*.c) $(UNIT_op) user/flow/agent/verdict.c user/flow/agent/walltime.c user/flow/llm/call.c user/flow/llm/mcp_call.c user/flow/attempts.c user/flow/coverage.c
UNIT_sandbox := user/sandbox.c
UNIT_symbol := $(wildcard user/symbol/*.c) user/attach/maps.c user/attach/debugdata.c user/attach/elf.c
UNIT_perfmap := user/symbol/perfmap.c user/symbol/symtab.c
UNIT_demangle := user/symbol/demangle.c
UNIT_profile := $(wildcard user/flow/profile*.c) user/flow/record.c
UNIT_report := $(wildcard user/view/report*.c) user/view/format.c $(UNIT_op)
UNIT_report_op := $(UNIT_report)
UNIT_report_chance := user/view/report_chance.c
UNIT_coverage := user/flow/coverage.c
UNIT_elf := user/attach/elf.c
UNIT_debugdata := user/attach/debugdata.c user/attach/elf.c
UNIT_maps := user/attach/maps.c
UNIT_site := $(wildcard user/attach/site*.c) user/attach/insn.c user/attach/insn_arm64.c user/attach/elf.c
UNIT_tlsfind := $(wildcard user/attach/tlsfind*.c user/attach/site*.c) user/attach/gotable.c user/attach/debugdata.c user/attach/frames.c user/attach/insn.c user/attach/insn_arm64.c \
	user/attach/elf.c
UNIT_tlsfind_go := $(UNIT_tlsfind)
UNIT_ahead := user/attach/ahead.c $(UNIT_tlsfind)
UNIT_tlsfind_anchor := $(UNIT_tlsfind)
UNIT_target := user/attach/target.c user/attach/target_name.c user/attach/target_files.c user/attach/target_package.c user/attach/target_words.c user/attach/ldcache.c user/attach/elf.c
UNIT_options := user/options.c user/view/report_by.c $(UNIT_funcfind)
UNIT_targets := user/targets.c user/attach/target.c user/attach/target_name.c user/attach/elf.c
UNIT_abi :=
UNIT_pipeline := $(wildcard user/pipeline*.c) user/capture.c user/privilege.c user/sandbox.c $(wildcard user/flow/*.c user/flow/*/*.c user/view/*.c)

UNIT_TESTS := $(patsubst tests/unit/test_%.c,%,$(sort $(wildcard tests/unit/test_*.c)))
UNIT_LIBS := -lcmocka $(FILE_LIBS) $(WIRE_LIBS) -lelf -lz -lcjson -lm
UNIT_WRAP := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=strndup

# objects of the plain and the sanitized unit build
$(O)/san/%.o: %.c $(STAMP)
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -O1 $(SAN_FLAGS) -MMD -MP -c $< -o $@

define unit_rule
$(O)/tests/unit/$(1): $$(patsubst %.c,$(O)/%.o,tests/unit/test_$(1).c tests/unit/harness.c $$(UNIT_$(1)) $$(BASE_SRCS))
	@mkdir -p $$(@D)
	$$(call say,LD,$$@)$$(CC) $$(LDFLAGS) $(UNIT_WRAP) -o $$@ $$^ $$(UNIT_LIBS_$(1)) $$(UNIT_LIBS)
$(O)/san/tests/unit/$(1): $$(patsubst %.c,$(O)/san/%.o,tests/unit/test_$(1).c tests/unit/harness.c $$(UNIT_$(1)) $$(BASE_SRCS))
	@mkdir -p $$(@D)
	$$(call say,LD,$$@)$$(CC) $$(LDFLAGS) $(SAN_FLAGS) $(UNIT_WRAP) -o $$@ $$^ $$(UNIT_LIBS_$(1)) $$(UNIT_LIBS)
endef
$(foreach t,$(UNIT_TESTS),$(eval $(call unit_rule,$(t))))
UNIT_LIBS_abi := -lbpf
$(O)/tests/unit/abi $(O)/san/tests/unit/abi: | $(O)/perfbpf.bpf.o

# --- small libraries of special shapes, for the tests of the site resolver and the finder ------------------------------
SHAPES :=
ifeq ($(MACHINE),x86_64)
SHAPES := $(patsubst tests/unit/shapes/%.S,$(O)/tests/shapes/%.so,$(sort $(wildcard tests/unit/shapes/*.S))) \
	$(patsubst %,$(O)/tests/shapes/compiled_%.so,O0 O2 Os cet frame)
endif
SHAPE_FLAGS_compiled_O0 := -O0
SHAPE_FLAGS_compiled_O2 := -O2 -fcf-protection=none
SHAPE_FLAGS_compiled_Os := -Os -fcf-protection=none
SHAPE_FLAGS_compiled_cet := -O2 -fcf-protection=full -fstack-protector-strong
SHAPE_FLAGS_compiled_frame := -O2 -fno-omit-frame-pointer
SHAPE_LINK := -shared -nostdlib -Wl,-soname,libshape.so -Wl,--build-id

$(O)/tests/shapes/%.so: tests/unit/shapes/%.S tests/unit/shapes/shape.inc $(STAMP)
	@mkdir -p $(@D)
	$(call say,SHAPE,$@)$(CC) -Itests/unit/shapes -Wa,-Itests/unit/shapes $(SHAPE_LINK) -o $@ $<
$(O)/tests/shapes/compiled_%.so: tests/unit/shapes/compiled.c $(STAMP)
	@mkdir -p $(@D)
	$(call say,SHAPE,$@)$(CC) $(WARN) -fPIC -fvisibility=hidden $(SHAPE_FLAGS_compiled_$*) $(SHAPE_LINK) -o $@ $<

# Symbols in mini debug info only, as Fedora's packages are made.
$(O)/tests/shapes/minidebug.so: tests/unit/shapes/internal.S tests/unit/shapes/shape.inc $(STAMP)
	@mkdir -p $(@D)
	$(call say,SHAPE,$@)echo '{ local: *; };' > $@.map
	$(Q)$(CC) -Itests/unit/shapes -Wa,-Itests/unit/shapes $(SHAPE_LINK) -Wl,--version-script=$@.map -o $@.full $<
	$(Q)objcopy --only-keep-debug $@.full $@.debug && strip -g $@.debug && xz -kf $@.debug && strip -s -o $@.bare $@.full
	$(Q)objcopy --add-section .gnu_debugdata=$@.debug.xz $@.bare $@
SHAPES += $(if $(SHAPES),$(O)/tests/shapes/minidebug.so)

# Stripped libraries that are known by their error reports; .sym: before they were stripped.
STRING_SHAPES := pic cold odd_calls os oz nopie peek aead aead_only aead_same two_writes two_reads no_write stray
STRING_COMPILER_oz := $(CLANG)
STRING_SHARED := -O2 -fPIC -shared
STRING_BARE := -fno-asynchronous-unwind-tables
STRING_FLAGS_pic := $(STRING_SHARED)
STRING_FLAGS_os := $(STRING_BARE) -Os -fPIC -shared -fcf-protection=none -Wl,-z,noseparate-code
STRING_FLAGS_oz := $(STRING_BARE) -Oz -fPIC -shared -DAEAD
STRING_FLAGS_nopie := $(STRING_BARE) -O2 -fno-pie -no-pie -static -Wl,-e,use -DAEAD
STRING_FLAGS_cold := $(STRING_SHARED) -DCOLD
STRING_FLAGS_odd_calls := $(STRING_BARE) $(STRING_SHARED) -DODD_CALLS
STRING_FLAGS_peek := $(STRING_SHARED) -DWITH_PEEK
STRING_FLAGS_aead := $(STRING_SHARED) -DAEAD
STRING_FLAGS_aead_only := $(STRING_SHARED) -DAEAD -DNO_SSL
STRING_FLAGS_aead_same := $(STRING_SHARED) -DAEAD '-DAEAD_ROOT="/src/boringssl/"'
STRING_FLAGS_two_writes := $(STRING_SHARED) -DTWO_WRITES
STRING_FLAGS_two_reads := $(STRING_SHARED) -DTWO_READS
STRING_FLAGS_no_write := $(STRING_SHARED) -DNO_WRITE
STRING_FLAGS_stray := $(STRING_BARE) $(STRING_SHARED) -DSTRAY
$(O)/tests/shapes/strings_%.sym: tests/unit/shapes/strings.c $(STAMP)
	@mkdir -p $(@D)
	$(call say,SHAPE,$@)$(or $(STRING_COMPILER_$*),$(CC)) $(WARN) $(STRING_FLAGS_$*) -nostdlib -Wl,--build-id -o $@ $<
$(O)/tests/shapes/strings_%.so: $(O)/tests/shapes/strings_%.sym
	$(call say,STRIP,$@)strip -o $@ $<
SHAPES += $(if $(SHAPES),$(STRING_SHAPES:%=$(O)/tests/shapes/strings_%.so) $(STRING_SHAPES:%=$(O)/tests/shapes/strings_%.sym))

$(foreach t,elf debugdata symbol site tlsfind tlsfind_anchor,$(O)/tests/unit/$(t) $(O)/san/tests/unit/$(t)): | $(SHAPES)

unit: $(UNIT_TESTS:%=$(O)/tests/unit/%) $(UNIT_TESTS:%=$(O)/san/tests/unit/%)
.PHONY: unit

check-unit: unit ## unit tests, plain and under ASan and UBSan
	$(Q)tests/run --out $(O)/tests/log unit $(UNIT_TESTS:%=$(O)/tests/unit/%) $(UNIT_TESTS:%=$(O)/san/tests/unit/%)

# --- fuzz targets: clang's libFuzzer; tests/fuzz/fuzz_NAME.c with the sources of UNIT_NAME -----------------------------
FUZZ_TARGETS := $(patsubst tests/fuzz/fuzz_%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))
FUZZ_SECONDS ?= 6
FUZZ_MINUTES ?= 30
FUZZ_CFLAGS := -std=c11 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined
FUZZ_HEADERS := $(wildcard bpf/*.h user/*.h user/*/*.h user/*/*/*.h tests/fuzz/*.h)
define fuzz_rule
$(O)/fuzz/$(1): tests/fuzz/fuzz_$(1).c $$(UNIT_$(1)) $$(BASE_SRCS) $(FUZZ_HEADERS) $(STAMP)
	@mkdir -p $$(@D)
	$$(call say,FUZZ,$$@)$$(CLANG) $$(CPPFLAGS) $$(FUZZ_CFLAGS) -o $$@ $$(filter %.c,$$^) $(FILE_LIBS) $(WIRE_LIBS) -lelf -lz -lcjson -lm
endef
$(foreach t,$(FUZZ_TARGETS),$(eval $(call fuzz_rule,$(t))))
fuzz: $(FUZZ_TARGETS:%=$(O)/fuzz/%)
.PHONY: fuzz fuzz-long

fuzz-long: fuzz ## goes on until each fuzz target ran for FUZZ_MINUTES (30) of processor time without a find, and keeps what they learned
	$(Q)tests/fuzz/long $(O) $(FUZZ_MINUTES)

check-fuzz: fuzz ## every fuzz target for FUZZ_SECONDS (6: two minutes for all on two cores)
	$(Q)tests/run --out $(O)/tests/log fuzz $(FUZZ_SECONDS) $(FUZZ_TARGETS:%=$(O)/fuzz/%)

# --- test programs ----------------------------------------------------------------------------------------------------
TEST_TOOLS = $(STATIC_CLIENTS) $(HOTSPOTS) $(FUNCTARGETS) $(ALLOCLOADS) $(O)/tests/planted $(O)/tests/bpftest $(O)/tests/sampletest $(O)/tests/modelserver $(O)/tests/modelclient $(O)/tests/strangerclient $(O)/tests/jsonl2cap $(O)/tests/repeatcap $(O)/tests/daycap $(O)/tests/tlsbench $(O)/tests/sockbench $(O)/tests/floorbench

MODELSERVER_SRCS := $(sort $(wildcard tests/tools/modelserver/*.c))
$(O)/tests/modelserver: $(MODELSERVER_SRCS:%.c=$(O)/%.o) $(O)/tests/tools/testcert.o $(BASE_SRCS:%.c=$(O)/%.o)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ -lssl -lcrypto -lnghttp2 -lbrotlienc -lbrotlidec -lzstd -lz -lcjson -lm -lpthread
$(O)/tests/modelclient: $(O)/tests/tools/modelclient.o $(BASE_SRCS:%.c=$(O)/%.o)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ -lssl -lcrypto -lcjson -lm -lpthread
# OpenSSL inside the program: with symbols (.sym), and as people ship it, stripped; in both kinds of executable.
STATIC_CLIENTS := $(O)/tests/modelclient_pie $(O)/tests/modelclient_nopie
LINK_pie := -pie
LINK_nopie := -no-pie
$(O)/tests/modelclient_%.sym: $(O)/tests/tools/modelclient.o $(BASE_SRCS:%.c=$(O)/%.o)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) $(LINK_$*) -o $@ $^ -Wl,-Bstatic -lssl -lcrypto -Wl,-Bdynamic -lcjson -lm -lpthread
$(STATIC_CLIENTS): %: %.sym
	$(call say,STRIP,$@)strip -o $@ $<
.SECONDARY: $(STATIC_CLIENTS:%=%.sym)
$(O)/tests/unit/tlsfind_anchor $(O)/san/tests/unit/tlsfind_anchor: | $(STATIC_CLIENTS)
$(O)/tests/strangerclient: $(O)/tests/tools/strangerclient.o
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -s -o $@ $^ -Wl,-Bstatic -lmbedtls -lmbedx509 -lmbedcrypto -Wl,-Bdynamic -ldl
# A service with planted costs; callers are told by frame pointers.
PLANTED_OBJS := $(patsubst %.c,$(O)/%.o,$(sort $(wildcard tests/tools/planted/*.c)))
$(PLANTED_OBJS): ALL_CFLAGS += -O1 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer
$(O)/tests/planted: $(PLANTED_OBJS)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ -lpthread
# Planted costs; without frame pointers nobody can tell who called a function.
HOTSPOTS := $(O)/tests/hotspot $(O)/tests/hotspot-bare
HOTSPOT_FLAGS_hotspot := -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer
HOTSPOT_FLAGS_hotspot-bare := -fomit-frame-pointer
$(HOTSPOTS): tests/tools/hotspot.c $(STAMP)
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -O1 $(HOTSPOT_FLAGS_$(@F)) -o $@ $< -lpthread
# Functions to be traced by name, in code that may be unwound and in code that may not.
FUNCTARGETS := $(O)/tests/functarget $(O)/tests/functarget-unwinding
FUNCTARGET_FLAGS_functarget-unwinding := -fexceptions
$(FUNCTARGETS): tests/tools/functarget.c $(STAMP)
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -O2 $(FUNCTARGET_FLAGS_$(@F)) -o $@ $< -lpthread
$(O)/tests/unit/funcfind $(O)/san/tests/unit/funcfind: | $(FUNCTARGETS)
# Planted allocations, with every allocator that there is (a preloaded one needs no program of its own), and one that counts.
has_archive = $(filter /%,$(shell $(CC) -print-file-name=lib$(1).a))
HAVE_CXX := $(call has_archive,stdc++)
ALLOC_LIBRARIES := $(if $(HAVE_CXX),cxx static $(foreach l,jemalloc tcmalloc_minimal,$(if $(call has_archive,$(l)),$(l)))) \
		   $(if $(shell command -v musl-gcc),musl musl-static)
ALLOC_NEW := -DLINKED_NEW
ALLOC_FLAGS_cxx := $(ALLOC_NEW) -lstdc++
ALLOC_FLAGS_static := $(ALLOC_NEW) -static -lstdc++
ALLOC_FLAGS_jemalloc := $(ALLOC_NEW) -l:libjemalloc.a -lstdc++ -lm
ALLOC_FLAGS_tcmalloc_minimal := $(ALLOC_NEW) -l:libtcmalloc_minimal.a -lstdc++ -lm
ALLOC_FLAGS_musl-static := -static
ALLOCLOADS := $(O)/tests/allocload $(ALLOC_LIBRARIES:%=$(O)/tests/allocload-%) $(O)/tests/countalloc.so
$(filter $(O)/tests/allocload%,$(ALLOCLOADS)): tests/tools/allocload.c $(STAMP)
	@mkdir -p $(@D)
	$(call say,CC,$@)$(if $(findstring -musl,$@),musl-gcc,$(CC)) $(CPPFLAGS) $(ALL_CFLAGS) -O1 -fno-omit-frame-pointer -fno-optimize-sibling-calls \
		-o $@ $< $(ALLOC_FLAGS_$(patsubst allocload-%,%,$(@F))) -ldl -lpthread
$(O)/tests/countalloc.so: tests/tools/countalloc.c $(STAMP)
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -fno-builtin -fno-omit-frame-pointer -fPIC -shared -o $@ $< -ldl
$(O)/tests/sockbench: $(O)/tests/bench/sockbench.o
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^
# The floor that perfbpf is compared with: an object of its own.
$(O)/tests/bench/floor.bpf.o: tests/bench/floor.bpf.c $(STAMP)
	@mkdir -p $(@D)
	$(call say,CLANG,$@)$(CLANG) $(BPF_CFLAGS) -Wno-unused-parameter -D__TARGET_ARCH_$(BPF_ARCH) -idirafter $(SYSROOT)/usr/include/$(MULTIARCH) -MMD -MP -c $< -o $@
$(O)/gen/floor.skel.h: $(O)/tests/bench/floor.bpf.o
	@mkdir -p $(@D)
	$(call say,SKEL,$@)$(BPFTOOL) gen skeleton $< name floor_bpf > $@
$(O)/tests/bench/floorbench.o: $(O)/gen/floor.skel.h
$(O)/tests/floorbench: $(O)/tests/bench/floorbench.o
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ -Wl,-Bstatic -lbpf -Wl,-Bdynamic -lelf -lz
$(O)/tests/tlsbench: $(O)/tests/bench/tlsbench.o $(O)/tests/tools/testcert.o
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ -lssl -lcrypto -lpthread
$(O)/tests/repeatcap $(O)/tests/daycap $(O)/tests/jsonl2cap: $(O)/tests/%: $(O)/tests/tools/%.o $(BASE_SRCS:%.c=$(O)/%.o)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ -lcjson -lm

BPFTEST_OBJS = $(PROBES_OBJS) $(O)/user/attach/ourplace.o $(O)/user/attach/aside.o $(O)/user/attach/allocfind.o $(O)/user/attach/allocwatch.o $(O)/user/attach/allocwindow.o $(O)/user/attach/overload.o $(O)/user/attach/progcost.o $(O)/user/attach/reclaim.o $(O)/user/attach/ringahead.o $(O)/user/attach/sampling.o $(O)/user/attach/tails.o $(O)/user/attach/syscalls.o $(O)/user/attach/fileid.o $(O)/user/attach/iterator.o \
		$(UNIT_tlsfind:%.c=$(O)/%.o) $(BASE_SRCS:%.c=$(O)/%.o)
$(O)/tests/bpftest: $(patsubst %.c,$(O)/%.o,$(sort $(wildcard tests/bpf/bpftest/*.c)))
$(O)/tests/sampletest: $(O)/tests/bpf/sampletest.o
$(O)/tests/bpftest $(O)/tests/sampletest: $(BPFTEST_OBJS)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ -lssl -lcrypto $(LIBS) -lpthread

# Go programs, where there is a compiler: with symbols, without ("-s -w"), position-independent.
GO_PROGRAMS := $(if $(shell command -v go),$(foreach p,client load,$(O)/tests/go/$(p) $(O)/tests/go/$(p)-stripped) $(O)/tests/go/client-pie)
GO_FLAGS_stripped := -ldflags='-s -w'
GO_FLAGS_pie := -buildmode=pie -ldflags='-s -w'
GO_ENV = $(if $(ARCH),GOARCH=$(BPF_ARCH:x86=amd64)) GOFLAGS= GO111MODULE=off GOTOOLCHAIN=local CGO_ENABLED=0 HOME=$${HOME:-$(abspath $(O))}
define go_rule
$(O)/tests/go/$(1)$(if $(2),-$(2)): tests/e2e/clients/$(1).go
	@mkdir -p $$(@D)
	$$(call say,GO,$$@)$$(GO_ENV) go build $(if $(2),$$(GO_FLAGS_$(2))) -o $$@ $$<
endef
$(foreach p,client load,$(eval $(call go_rule,$(p),)) $(eval $(call go_rule,$(p),stripped)))
$(eval $(call go_rule,client,pie))
$(O)/tests/unit/tlsfind_go $(O)/san/tests/unit/tlsfind_go: | $(GO_PROGRAMS)

# What tests/kernels/vm takes into its machine.
vm-programs: $(patsubst %,$(O)/%,perfbpf tests/bpftest tests/sampletest tests/modelserver tests/modelclient tests/hotspot) \
	$(filter %/client-stripped,$(GO_PROGRAMS))
.PHONY: vm-programs

tools: $(TEST_TOOLS) $(GO_PROGRAMS)
.PHONY: tools

clients: ## fetch programs with TLS stacks of their own into build/clients, for the tests (PERFBPF_CLIENTS: shared place)
	$(Q)tests/tools/clients $(O)/clients
.PHONY: clients

# What tests write is root's, and so is what they trace: under sudo too, but for the tests of that.
AS_ROOT := env -u SUDO_UID -u SUDO_GID

# As many steps of a build at once as there are processors, where the user did not say how many.
AT_ONCE = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

# --- the user's targets -------------------------------------------------------------------------------------------------
deps: ## install what build, demo and tests need (root)
	$(Q)tests/tools/deps

demo: deps ## trace the project's own model server and client, live (root)
	$(Q)$(MAKE) --no-print-directory $(AT_ONCE) all tools
	$(Q)tests/tools/demo $(O)

check: deps ## all tests; those that need root and BPF say so where they cannot run
	$(Q)$(MAKE) --no-print-directory $(AT_ONCE) all unit tools fuzz
	$(Q)tests/tools/clients $(O)/clients || echo 'check: tests of the programs above are skipped'
	$(Q)$(AS_ROOT) tests/run --out $(O)/tests/log all $(O) $(FUZZ_SECONDS)

check-cases: all tools ## CASES=DIR: replay a folder of cases against its expected.json
	$(Q)$(AS_ROOT) $(PYTHON) tests/tools/check_cases.py --build $(O) $(CASES)

check-viewers: all tools ## a session's trace in headless Chromium: Go's trace viewer and speedscope
	$(Q)tests/tools/clients $(O)/clients speedscope || true
	$(Q)$(AS_ROOT) $(PYTHON) tests/viewers/check_viewers.py $(O)

KILLS ?= 200
check-kills: all tools ## SIGKILL at KILLS (200) random moments of live runs (root); SEED=N repeats one
	$(Q)KILLS=$(KILLS) tests/e2e/test_kills.py $(O)

check-static: all ## -fanalyzer, clang-tidy and the helpers that BPF programs call (minutes)
	$(Q)tests/tools/check_static '$(CC)' '$(O)' $(CPPFLAGS)
	$(Q)tests/bpf/check_helpers.py $(O)/perfbpf.bpf.o

check-valgrind: all tools ## the replay cases and their reports under valgrind (minutes)
	$(Q)$(AS_ROOT) tests/tools/check_valgrind.py $(O)

check-kernels: $(if $(filter arm64,$(KERNELS)),,all tools) ## other kernels, emulated: Debian's 6.1, 6.1-rt, 6.12; KERNELS=all: more of them, and lockdown; KERNELS=arm64
	$(Q)tests/kernels/run $(O) $(KERNELS)

SOAK_MINUTES ?= 60
check-soak: all tools ## SOAK_MINUTES (60) of churn: memory, descriptors, BPF objects and their entries stay flat (root)
	$(Q)$(PYTHON) tests/e2e/soak.py $(O) $(SOAK_MINUTES) $(O)/soak.json

check-headers: ## each header compiles alone
	$(Q)tests/tools/check-headers '$(CC)' '$(CLANG)'

check-layers: ## includes against the layer table of doc/design.md
	$(Q)tests/tools/check-layers

check-docs: ## the documents, and report, know every option, member and word of the code; no file is named that is not there
	$(Q)$(PYTHON) tests/tools/check_docs.py

check-scenarios: ## the tests that tests/scenarios.md names exist
	$(Q)$(PYTHON) tests/tools/check_scenarios.py

check-arm64: ## the BPF side compiles for arm64
	$(Q)mkdir -p $(O)/arm64 && for f in $(BPF_SRCS); do \
		$(CLANG) $(BPF_CFLAGS) -D__TARGET_ARCH_arm64 -idirafter /usr/include/$(MULTIARCH) -c $$f \
			-o $(O)/arm64/$$(basename $$f .c).o || { echo "not ok arm64 $$f"; exit 1; }; done; echo "ok the BPF side compiles for arm64"

check-arm64-user: $(SKEL) ## the user side too, against arm64's headers out of packages
	$(Q)tests/kernels/fetch $(O)/kernels arm64
	$(Q)printf '%s\n' $(USER_SRCS) | xargs -P 2 -n 8 $(CLANG) --target=aarch64-linux-gnu -fsyntax-only -std=c11 $(WARN) -Wno-string-concatenation \
		$(CPPFLAGS) -nostdlibinc -isystem $(O)/kernels/arm64/usr/include -isystem $(O)/kernels/arm64/usr/include/aarch64-linux-gnu && \
		echo "ok the user side compiles for arm64"

check-format: ## clang-format 14 finds nothing to change (other versions format otherwise)
	$(Q)tests/tools/check-format

format: ## clang-format everything
	$(Q)clang-format -i $$(git ls-files '*.c' '*.h')

bench: all tools ## the benchmarks, as ratios, with spread (root)
	$(Q)$(AS_ROOT) $(PYTHON) tests/bench/bench.py --build $(O)
	$(Q)$(AS_ROOT) $(PYTHON) tests/bench/axes.py --build $(O)
	$(Q)$(AS_ROOT) $(PYTHON) tests/bench/scale.py --build $(O)
	$(Q)$(AS_ROOT) $(PYTHON) tests/bench/replay.py $(O)

man: $(O)/perfbpf.8
$(O)/perfbpf.8: doc/perfbpf.8.md
	@mkdir -p $(@D)
	$(call say,MAN,$@)sed '/^<!--/d' $< | go-md2man -out $@

install: all man ## binary, man page, completions; DESTDIR, PREFIX
	install -Dm755 $(O)/perfbpf $(DESTDIR)$(PREFIX)/bin/perfbpf
	install -Dm644 $(O)/perfbpf.8 $(DESTDIR)$(PREFIX)/share/man/man8/perfbpf.8
	install -Dm644 doc/completion.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/perfbpf

uninstall: ## what install put there
	rm -f $(DESTDIR)$(PREFIX)/bin/perfbpf $(DESTDIR)$(PREFIX)/share/man/man8/perfbpf.8 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/perfbpf

clean: ## remove the build directory
	rm -rf $(O)

-include $(shell find $(O) -path $(O)/kernels -prune -o -name '*.d' -print 2>/dev/null)
