package main

// feature is a column of the table, with the tests that show it.
type feature struct {
	name  string
	tests []key
}

// packages are counted in the last columns.
var packages = []string{"test/e2e", "test/everynode", "test/identity"}

func e2e(names ...string) (keys []key)      { return in("test/e2e", names) }
func identity(names ...string) (keys []key) { return in("test/identity", names) }
func everynode(names ...string) []key       { return in("test/everynode", names) }
func target(name string) []key              { return []key{{"", name}} }

func in(pkg string, names []string) (keys []key) {
	for _, name := range names {
		keys = append(keys, key{pkg, name})
	}
	return keys
}

// features are what a user may ask for on a version.
var features = []feature{
	{"demonstration", target("demo")},
	{"client", target("client")},
	{"manifests", e2e("TestManifestsApply", "TestManifestsDelete")},
	{"claims of pods", e2e("TestWaitForFirstConsumer", "TestClaimsOfAPod", "TestPreBound")},
	{"capacity", e2e("TestSchedulerKnowsTheCapacity", "TestRaceForTheLastSpace")},
	{"scores by capacity", e2e("TestSchedulerScoresByCapacity")},
	{"expansion", e2e("TestExpand", "TestExpandInfeasible", "TestExpandShared")},
	{"clones", e2e("TestClone")},
	{"snapshots", target("test-snapshots")},
	{"inline volumes", e2e("TestInlineVolume")},
	{"csi", e2e("TestCloneOfCSI", "TestSharedCSI")},
	{"shared pools", e2e("TestShared", "TestSharedLeaderKilled")},
	{"every node", everynode("TestDaemonSet", "TestExpand")},
	{"adoption", e2e("TestAdopt", "TestAdoptFromCSI")},
	{"confined identities", identity("TestAttacks", "TestNeeds")},
	{"check and why", append(identity("TestCheckCluster"), e2e("TestWhy")...)},
	{"claim index", e2e("TestClaimIndex")},
	{"attributes classes", e2e("TestAttributesClass")},
	{"API away", e2e("TestAPIServerAway", "TestComesBack")},
	{"trials", []key{
		{"", "try-crash"}, {"", "try-storm"}, {"", "try-hang"},
		{"", "try-hostile"}, {"", "try-chaos"}, {"", "try-soak"},
	}},
}

// others are of kinds that the table does not have, for a version on which not all tests are run.
var others = []string{
	"TestDelete", "TestRetain", "TestArchive", "TestRefusals", "TestRetainAndDelete",
	"TestKilledUnderLoad", "TestNodeAway", "TestForgetNode", "TestImport", "TestOtherCluster",
	"TestAliasClasses", "TestProvisionOnNode", "TestClientCertificate", "TestWrongStorage",
	"TestForgedVolumes", "TestDamagedRecords", "TestOverview", "TestWebhookDown", "TestCordon",
	"TestVolumeKeptForAClaim", "TestPodThatNamesItsNode", "TestTooLargeOnce",
}

// names are one test of each kind. test/identity is run whole: it is short.
func names() (all []string) {
	for _, f := range features {
		for _, one := range f.tests {
			if one.pkg == "test/e2e" || one.pkg == "test/everynode" {
				all = append(all, one.name)
			}
		}
	}
	return append(all, others...)
}
