package main

// kind is how a panel draws.
type kind int

const (
	count  kind = iota // one number, of which more than 0 is bad
	number             // one number
	lines
	bars   // stacked, of what occurred between two points
	states // over time, 1 is good and 0 is bad
	table  // of now
)

// row is a heading with panels.
type row struct {
	title  string
	panels []panel
}

// panel is one of the dashboard. Its description is the help of its metrics.
type panel struct {
	title   string
	kind    kind
	wide    uint32 // of 24
	unit    string // Grafana's name of it
	queries []query
}

// query is an expression with places for metrics (catalog.fill), and what its series are called: in
// a table that is the column's name.
type query struct{ expression, legend string }

// notShown are metrics that are in no panel, and why.
var notShown = map[string]string{
	"credential_renewed_by_timestamp_seconds": "it says when the alert of an end is early",
	"pool_used_estimate":                      "it marks a figure: the commands show it as ~",
	"volume_used_estimate":                    "it marks a figure: the commands show it as ~",
	"volume_used_timestamp_seconds":           "it is the age of a figure: volumes shows it",
}

const (
	ofPool   = "{{instance}} {{pool}}"
	ofWork   = "{{instance}} {{pool}} {{kind}}"
	ofNode   = "{{instance}}"
	ofReason = "{{reason}}"
)

// rows are the dashboard. What is counted is shown as what was added, since it is seldom: a rate of
// 0.003 a second tells nobody of one refusal.
var rows = []row{
	{"Overview", []panel{
		{"Daemons", number, 3, "", []query{{"count(<build_info>)", ""}}},
		{"Daemons down", count, 3, "", []query{{"sum(1 - <=up>)", ""}}},
		{"Not ready", count, 3, "", []query{{"sum(1 - <ready>)", ""}}},
		{"Without the API", count, 3, "", []query{{"sum(1 - <api_up>)", ""}}},
		{"Pools closed or full", count, 3, "", []query{{"sum(1 - <pool_open>)", ""}}},
		{"Volumes", number, 3, "", []query{{"sum(<pool_volumes>)", ""}}},
		// One daemon counts for all nodes, so that it is not chosen by $node.
		{"Volumes on nodes that are away", count, 3, "",
			[]query{{"max(hostpath_provisioner_volumes_away)", ""}}},
		{"First credential ends in", number, 3, "s",
			[]query{{"min(<credential_expiry_timestamp_seconds>) - time()", ""}}},
	}},
	{"Pools", []panel{
		{"Pools now", table, 24, "bytes", []query{
			{"sum by (instance, pool) (<pool_size_bytes>)", "Size"},
			{"sum by (instance, pool) (<pool_avail_bytes>)", "Available"},
			{"sum by (instance, pool) (<pool_used_bytes>)", "Used by volumes"},
			{"sum by (instance, pool) (<pool_promised_bytes>)", "Promised"},
			{"sum by (instance, pool) (<pool_provisionable_bytes>)", "For one more volume"},
		}},
		{"Pools that take volumes", states, 12, "", []query{{"<pool_open>", ofPool}}},
		{"Findings", table, 12, "", []query{
			{"max by (instance, pool, severity, reason) (<pool_finding>)", "Found"}}},
		{"Filesystem in use", lines, 8, "percentunit",
			[]query{{"1 - <pool_avail_bytes> / <pool_size_bytes>", ofPool}}},
		{"Promised of the size", lines, 8, "percentunit",
			[]query{{"<pool_promised_bytes> / <pool_size_bytes>", ofPool}}},
		{"For one more volume", lines, 8, "bytes", []query{{"<pool_provisionable_bytes>", ofPool}}},
		{"Used by volumes", lines, 8, "bytes", []query{{"<pool_used_bytes>", ofPool}}},
		{"Inodes in use", lines, 8, "percentunit",
			[]query{{"1 - <pool_inodes_free> / (<pool_inodes> > 0)", ofPool}}},
		{"Projects taken", lines, 8, "percentunit",
			[]query{{"<pool_projects_taken> / <pool_projects>", ofPool}}},
		{"Looks at pools", lines, 12, "cps",
			[]query{{"rate(<pool_checks_total>[$__rate_interval])", ofPool}}},
		{"How long the last look took", lines, 12, "s",
			[]query{{"<pool_check_duration_seconds>", ofPool}}},
	}},
	{"Volumes", []panel{
		{"Volumes by state", lines, 12, "", []query{{"sum by (state) (<volumes>)", "{{state}}"}}},
		{"PersistentVolumes", lines, 12, "", []query{{"<pool_volumes>", ofPool}}},
		{"Fullest volumes", lines, 12, "percentunit", []query{{
			"topk(10, <volume_used_bytes> / <volume_limit_bytes>)", ofClaim}}},
		{"Volumes with most of their inodes", lines, 12, "percentunit", []query{{
			"topk(10, <volume_inodes_used> / <volume_inodes_limit>)", ofClaim}}},
		{"Removed, and not removed", bars, 24, "",
			[]query{{added("volumes_removed_total", "reason"), ofReason}}},
	}},
	{"Copies and purges", []panel{
		{"Under way", lines, 8, "", []query{{"<work_running>", ofWork}}},
		{"Files so far", lines, 8, "", []query{{"<work_files>", ofWork}}},
		{"Bytes so far", lines, 8, "bytes", []query{{"<work_bytes>", ofWork}}},
	}},
	{"Claims and snapshots", []panel{
		{"Claims that got a volume", bars, 12, "", []query{{
			added("claims_provisioned_total", "instance, pool"), ofPool}}},
		{"Claims that were refused", bars, 12, "",
			[]query{{added("claims_refused_total", "reason"), ofReason}}},
		{"From a claim to its volume", lines, 12, "s", []query{
			{quantile("0.5"), "half"}, {quantile("0.99"), "99 in 100"}}},
		{"Expansions", bars, 12, "",
			[]query{{added("expansions_total", "reason"), ofReason}}},
		{"Snapshots", bars, 12, "",
			[]query{{added("snapshots_total", "reason"), ofReason}}},
		{"Directories of scope every-node", bars, 12, "",
			[]query{{added("node_directories_total", "reason"), ofReason}}},
	}},
	{"API", []panel{
		{"API in use", states, 12, "", []query{{"<api_up>", ofNode}}},
		{"Requests that were refused", bars, 12, "",
			[]query{{added("api_refused_total", "reason"), ofReason}}},
		{"Since the API was last heard", lines, 8, "s",
			[]query{{"time() - <api_last_success_timestamp_seconds>", ofNode}}},
		{"Credential ends in", lines, 8, "s",
			[]query{{"<credential_expiry_timestamp_seconds> - time()", ofNode}}},
		{"Events that were not written", bars, 8, "",
			[]query{{added("events_dropped_total", "type"), "{{type}}"}}},
	}},
	{"Daemons", []panel{
		{"Daemons that run", states, 8, "", []query{{"<=up>", ofNode}}},
		{"Daemons that are ready", states, 8, "", []query{{"<ready>", ofNode}}},
		{"Versions", table, 8, "",
			[]query{{"count by (version, goversion) (<build_info>)", "Daemons"}}},
		{"Configuration in force", states, 8, "", []query{{"<config_in_force>", ofNode}}},
		{"Last reload", states, 8, "", []query{{"<config_last_reload_successful>", ofNode}}},
		{"Since the configuration was read", lines, 8, "s",
			[]query{{"time() - <config_last_reload_success_timestamp_seconds>", ofNode}}},
		{"Memory", lines, 8, "bytes", []query{{"<=process_resident_memory_bytes>", ofNode}}},
		{"Processors", lines, 8, "percentunit",
			[]query{{"rate(<=process_cpu_seconds_total>[$__rate_interval])", ofNode}}},
		{"Open files", lines, 8, "", []query{{"<=process_open_fds>", ofNode}}},
	}},
}

const ofClaim = "{{instance}} {{namespace}}/{{persistentvolumeclaim}}"

// added is what a counter of ours counted between two points.
func added(counter, by string) string {
	return "sum by (" + by + ") (increase(<" + counter + ">[$__rate_interval]))"
}

// quantile is within which time a part of the claims got their volumes.
func quantile(part string) string {
	return "histogram_quantile(" + part +
		", sum by (le) (rate(<provision_duration_seconds_bucket>[$__rate_interval])))"
}
