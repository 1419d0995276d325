# One command a target. `make demo` needs Go and nothing else; `make test` a C compiler too, for the race detector.
GO ?= go
PKG ?= ./...

# Builds programs into bin/, those that are not up to date; all that tests need if none is named.
PROGRAMS := $(GO) run -buildvcs=false ./bench/stage/programs/build

.DEFAULT_GOAL := help
.PHONY: help build demo up down test test-rest nightly test-full race doors versions image image-test chart release release-check sim explore order claims chaos hostile fuzz sim-bugs mutants oracle bench metrics-check chart-check lint generate ceilings clean bin/basalt bin/basalt-bench

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## run Basalt on a cluster of 1,523 nodes, kill a shard and a coordinator, evict gangs for others, audit the result; under 4 minutes
	@$(PROGRAMS) basalt basalt-bench etcd kube-apiserver
	bin/basalt-bench demo

up: ## start a local cluster with Basalt, leave it running, and print the path of its kubeconfig; VOLCANO=1 adds Volcano's controllers, built from source
	@$(PROGRAMS) basalt basalt-bench etcd kube-apiserver kube-controller-manager kube-scheduler $(if $(VOLCANO),vc-controller-manager)
	bin/basalt-bench up $(if $(VOLCANO),--volcano)

down: bin/basalt-bench ## stop what `make up` started
	bin/basalt-bench down

test: bin/basalt-bench compiler ## run the tests of PKG=./..., with the race detector where more than one goroutine runs; about 15 minutes on two cores. Long scenarios take turns by the day
	bin/basalt-bench test $(PKG)

test-rest: bin/basalt-bench compiler ## run the long scenarios whose turn it is not today
	bin/basalt-bench test --rest

NIGHTLY := test-full doors versions oracle metrics-check chart-check image-test release-check sim-bugs chaos
nightly: ## run everything in full, whatever of it fails: all tests, other controllers, older releases of Kubernetes, the oracle, metrics, chart, image, seeded bugs, chaos for 30 minutes
	@failed=; for part in $(NIGHTLY); do began=$$(date +%s); \
		$(MAKE) $$part DURATION=30m && ended=passed || { ended=FAILED; failed="$$failed $$part"; }; \
		echo "nightly: $$part $$ended after $$(( ($$(date +%s) - began) / 60 )) minutes"; done; \
	[ -z "$$failed" ] || { echo "nightly: failed:$$failed"; exit 1; }

test-full: bin/basalt-bench compiler chromium
	bin/basalt-bench test --full $(PKG)

race: build compiler ## run the tests of PKG=./... three times with the race detector, to find flaky failures
	$(GO) test -race -timeout 60m -p 2 -count 3 $(PKG)

doors: build ## run jobs of Volcano, Ray, JobSet, LeaderWorkerSet, MPI and Kueue with their own controllers, built from source; the first time some minutes more than 5
	$(GO) test -tags doors -timeout 60m -v -p 1 -run Controller ./bench/prove/doors ./bench/stage/local/standing

# Those packages whose tests ask an API server for what may differ between releases.
RELEASES := 1.36 1.35
WIRED := ./api/kube ./api/relay ./coordinator/server ./shard/server ./deploy ./deploy/uninstall ./bench/stage/local ./bench/stage/kubelet \
	$(addprefix ./bench/prove/,badinput docs doors security upstream visibility volumes)
versions: bin/basalt-bench compiler ## run the tests that cross a wire against API servers of RELEASES=1.36 1.35, too, built from source; the first time each takes some minutes more
	@failed=; for release in $(RELEASES); do echo "Kubernetes $$release"; \
		BASALT_KUBERNETES=$$release bin/basalt-bench test $(WIRED) || failed="$$failed $$release"; done; \
	[ -z "$$failed" ] || { echo "versions: failed:$$failed"; exit 1; }

LONG ?= 10m
doors-long: build ## run jobs and Deployments of Volcano's for LONG=10m, shards killed, and judge each change
	$(GO) test -tags doors -timeout 120m -v -run TestLong ./bench/prove/doors -long $(LONG)

chart-check: ## lint the Helm chart, compare it with the kustomize base, and install it on a real API server; the first time some minutes, for Helm is built
	$(GO) test -timeout 30m -v -run Chart ./deploy

SEEDS ?= 1000
FIRST ?= 1
sim: bin/basalt-bench ## run the whole system in a deterministic simulator: SEEDS=1000 seeds from FIRST=1, on all cores
	bin/basalt-bench sim --seeds $(SEEDS) --first $(FIRST)

sim-bugs: ## enable seeded bugs one after another, each of which must be found, with at most SEEDS seeds each
	$(GO) build -buildvcs=false -tags faults -o bin/basalt-bench-faults ./cmd/basalt-bench
	$(GO) test -tags faults -run TestEvictUnread ./bench/prove/sim
	$(GO) test -tags faults -run AreSeen ./coordinator ./shard/node ./shard/topology
	bin/basalt-bench-faults explore --seeded
	bin/basalt-bench-faults sim --bugs --seeds $(SEEDS) --first $(FIRST)

EXPLORE ?= --gangs 2 --crashes 1
explore: bin/basalt-bench ## explore every interleaving of a small Basalt in which any one process crashes; EXPLORE= passes other flags
	bin/basalt-bench explore --gangs 2 --crashes 0
	bin/basalt-bench explore --gangs 1 --crashes 1
	bin/basalt-bench explore --gangs 1 --crashes 0 --edits 1
	bin/basalt-bench explore --gangs 1 --crashes 0 --edits 1 --implied
	for claim in small pod gang; do bin/basalt-bench explore --claim $$claim --crashes 0 || exit 1; done
	bin/basalt-bench explore --claim small --crashes 0 --edits 1
	for victim in c s1 s2; do bin/basalt-bench explore --claim small --crashes 1 --victims $$victim || exit 1; done
	for victim in c s1 s2; do bin/basalt-bench explore --victims $$victim $(EXPLORE) || exit 1; done

order: bin/basalt-bench ## explore a model of the log of intents, which is to keep affinity, anti-affinity and spread, and weaken its rules one at a time
	bin/basalt-bench order --weakened
	bin/basalt-bench order
	bin/basalt-bench order --large

claims: bin/basalt-bench ## explore a model of claims, by which gangs are to take room and quota from others, and weaken its rules one at a time
	bin/basalt-bench claims --weakened
	bin/basalt-bench claims
	bin/basalt-bench claims --large

CASES ?= 10000
SEQUENCES ?= 1000
oracle: ## compare where pods may go with the filters of kube-scheduler 1.37: CASES=10000 generated clusters and SEQUENCES=1000 of placements from SEED=1; the first time some minutes
	$(GO) test -C bench/prove/oracle .
	$(GO) run -C bench/prove/oracle -buildvcs=false . --cases $(CASES) --sequences $(SEQUENCES) --seed $(if $(filter-out 0,$(SEED)),$(SEED),1)

FUZZTIME ?= 30s
fuzz: ## fuzz every decoder, FUZZTIME=30s each
	@set -e; for file in $$(grep -rl --include='*_test.go' '^func Fuzz' .); do \
	for target in $$(sed -n 's/^func \(Fuzz[A-Za-z]*\)(.*/\1/p' $$file); do \
	echo "$$(dirname $$file) $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$(dirname $$file); done; done

mutants: bin/basalt-bench ## mutate one expression of PKG=./coordinator at a time and list the mutants that its tests miss; SAMPLE=120 mutants drawn by SEED; SINCE=REV: only lines changed since
	bin/basalt-bench mutants --package $(PKG) $(if $(SAMPLE),--sample $(SAMPLE) --seed $(SEED)) $(if $(SINCE),--since $(SINCE))

bench: bin/basalt bin/basalt-bench ## run a short set of measurements and print their tables; for more, bin/basalt-bench help
	bin/basalt-bench engine --nodes 1523,100000 --rounds 3
	bin/basalt-bench cluster --for 10s
	bin/basalt-bench kube --local --scenario kube-short --runs 3 --against null,kube-scheduler

DURATION ?= 5m
SEED ?= 0
chaos: bin/basalt-bench ## inject faults into real processes under load, and audit them: DURATION=5m, SEED=0 draws a seed, OLD=HEAD~1 adds an older version
	bin/basalt-bench chaos --duration $(DURATION) --seed $(SEED) $(if $(OLD),--old $(OLD))

FOR ?= 10m
hostile: bin/basalt-bench ## attack as a tenant with the ClusterRole edit, and measure the other tenants: FOR=10m, SEED=0 draws a seed
	bin/basalt-bench hostile --for $(FOR) --seed $(SEED)

metrics-check: build ## check metrics, dashboards and alerts by Prometheus' own parser and engine, against scrapes of real processes
	$(GO) test ./api/metric ./deploy/monitoring
	cd deploy/monitoring/check && $(GO) test -v -timeout 20m ./...

lint: ## check formatting, and vet
	@unformatted=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -C deploy/image .

build: ## build all programs into bin/; takes some minutes the first time
	@$(PROGRAMS)

PLATFORMS ?= linux/amd64,linux/arm64
NAME ?=
image: ## build the container image for PLATFORMS=linux/amd64,linux/arm64, without Docker, into bin/image; NAME=basalt:dev names it for kind, k3s, minikube and docker load; see deploy/docs/install.md
	@$(GO) run -C deploy/image -buildvcs=false . --root "$(CURDIR)" --output "$(CURDIR)/bin/image" --platforms "$(PLATFORMS)" --name "$(NAME)"

image-test: ## build the image for all platforms twice, in different surroundings, and compare and open the results
	$(GO) test -C deploy/image -count 1 -timeout 60m -v -skip TestTwoReleases .

chart: ## pack the Helm chart into bin/chart, with files in place of the links that a checkout has
	@$(GO) run -C deploy/image -buildvcs=false . --root "$(CURDIR)" --chart "$(CURDIR)/bin/chart"

release: ## build the release VERSION=v0.1.0 into bin/release: programs, kubectl plugin, image, chart, SBOMs, sums; it publishes nothing
	@[ -n "$(VERSION)" ] || { echo "name the version: make release VERSION=v0.1.0"; exit 1; }
	@$(GO) run -C deploy/image -buildvcs=false . --root "$(CURDIR)" --output "$(CURDIR)/bin/release" --release "$(VERSION)" $(if $(URL),--url "$(URL)")

release-check: ## build a release twice, in different folders, and compare all of it; about 10 minutes on two cores
	$(GO) test -C deploy/image -count 1 -timeout 120m -v -run Release .

generate: ## regenerate code and manifests from api/
	cd api/generate && $(GO) generate ./...

clean: ## stop what is running and remove what was built
	@if [ -x bin/basalt-bench ]; then bin/basalt-bench down; fi
	rm -rf bin .local

bin/basalt bin/basalt-bench:
	@$(PROGRAMS) $(@F)

ceilings: bin/basalt-bench ## lower the ceilings of the code's shape to today's figures; for the figures, bin/basalt-bench gauge
	bin/basalt-bench gauge --lower

.PHONY: compiler chromium
chromium: # in which the console is looked at; other tests do without
	@command -v chromium >/dev/null || apt-get install -y -qq chromium || { echo "install chromium"; exit 1; }

compiler:
	@cc=$$($(GO) env CC); command -v $${cc%% *} >/dev/null || \
	{ echo "the race detector needs a C compiler: install gcc, or set CC"; exit 1; }
