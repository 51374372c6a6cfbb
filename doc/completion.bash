# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# bash completion for perfbpf
_perfbpf() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	case $prev in
	-p | --pid) COMPREPLY=($(compgen -W "$(cd /proc && echo [0-9]*)" -- "$cur")); return ;;
	-o | --output | -c | --calls | --record | replay | report | diff) COMPREPLY=($(compgen -f -- "$cur")); return ;;
	--by) COMPREPLY=($(compgen -W "op op-function op-alloc model call tool mcp http connect func db process function stack wait wait-stack alloc fault" -- "$cur")); return ;;
	--) COMPREPLY=($(compgen -c -- "$cur")); return ;;
	esac
	case $cur in
	-*) COMPREPLY=($(compgen -W "--pid --name --output --calls --record --ring-bytes --duration --max-events --stale --sweep
		--write-interval --content --quiet --verbose --strict --all --cpu --off-cpu --alloc --db --http --func --by --op --top --last --self --total --json --folded --fail-on --help --version" -- "$cur")) ;;
	*) [ "$COMP_CWORD" -eq 1 ] && COMPREPLY=($(compgen -W "record replay report diff check" -- "$cur")) ;;
	esac
}
complete -o filenames -F _perfbpf perfbpf
