package volume

import "github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"

const (
	metaDir = record.OwnDir

	stagingDir = "staging"
	trashDir   = "trash"
	volumesDir = "volumes"
	archiveDir = "archive"
	markerFile = "pool.json"

	recordSuffix = ".json"
	newSuffix    = ".json.new" // a record that is being written; ends in no record's suffix

	emptyingSuffix = "~" // of a directory in the trash whose files are going; no PV's name has it
)
