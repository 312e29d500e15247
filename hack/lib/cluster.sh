# Copyright The Berth Authors.
# SPDX-License-Identifier: Apache-2.0
#
# What hack/e2e and hack/conformance/run share, to be sourced at the top of the tree by a bash with `set -euo pipefail`:
# stages, which are timed, and a cluster that does not outlive the script, however that ends. The script says in
#   cluster      how the cluster is called
#   kind         where hack/kind's program will be, and in kubeconfig the admin's kubeconfig: absolute paths
#   logs         where to put the logs of nodes and containers
#   keep         whether to keep the cluster: not empty
# and makes a function `leave`, which is called last and says what is where.
root=$PWD
kind() { (cd "$root/hack/kind" && "$kind" "$@"); }

# stage NAME COMMAND... says how long a command took. It has a process group of its own, which is stopped when this is.
# But for the last stages of all, nothing may catch its failure: the functions that are commands then go on after theirs.
set -m
running=
stage() {
	local name=$1 begin=$SECONDS status=0
	shift
	"$@" </dev/null &
	running=$!
	wait "$running" || status=$?
	running=
	echo "$name: $((SECONDS - begin)) s"
	return "$status"
}

# stop ends the stage that runs, and all that it started: what does not end within half a minute is killed.
stop() {
	[[ -n $running ]] || return 0
	kill -TERM -- "-$running" 2>/dev/null || return 0 # it has just ended
	for _ in {1..300}; do
		kill -0 -- "-$running" 2>/dev/null || return 0
		sleep 0.1
	done
	kill -KILL -- "-$running" 2>/dev/null || true
}

finish() {
	local status=$?
	trap - EXIT
	trap '' INT TERM
	stop
	if [[ -x $kind ]]; then
		kind logs -name "$cluster" "$logs" >/dev/null 2>&1 || echo "not all logs of the cluster could be collected" >&2
		if [[ -n $keep ]]; then
			echo "the cluster is kept: export KUBECONFIG=$kubeconfig; remove it with (cd hack/kind && $kind down -name $cluster)"
		else
			stage 'tear down' kind down -name "$cluster" -kubeconfig "$kubeconfig" || status=1
		fi
	fi
	leave
	exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
