package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The format of dm-log-writes (Linux, drivers/md/dm-log-writes.c): a superblock, then entries, each
// a sector with a header and, unless it is a discard, the sectors that were written. Numbers are
// little-endian, and count in sectors of the size in the superblock.
const (
	logMagic = 0x6a736677736872

	flagFlush   = 1
	flagFUA     = 2
	flagDiscard = 4
	flagMark    = 8
)

// logEntry is one request that the device had completed, in the order in which a power cut could
// have kept them.
type logEntry struct {
	Sector, Sectors uint64
	Flags           uint64
	Mark            string // of a mark: its text
	Data            []byte
}

// durable says that everything up to this entry was on stable storage: a client that has the
// acknowledgement then must find it.
func (e logEntry) durable() bool { return e.Flags&(flagFlush|flagFUA) != 0 }

// replay reads a log and calls each for one entry after the other, in order.
func replay(log io.ReaderAt, each func(e logEntry, sectorSize int64) error) error {
	var super struct {
		Magic, Version, Entries uint64
		SectorSize              uint32
	}
	header := make([]byte, 512)
	if _, err := log.ReadAt(header, 0); err != nil {
		return fmt.Errorf("superblock: %w", err)
	}
	if err := binary.Read(bytes.NewReader(header), binary.LittleEndian, &super); err != nil {
		return err
	}
	if super.Magic != logMagic || super.Version != 1 || super.SectorSize < 512 || super.SectorSize > 64<<10 {
		return fmt.Errorf("no log of dm-log-writes: magic %#x, version %d, sectors of %d bytes", super.Magic, super.Version, super.SectorSize)
	}
	size := int64(super.SectorSize)
	at := size
	for n := range super.Entries {
		e, length, err := readEntry(log, at, size)
		if err != nil {
			return fmt.Errorf("entry %d of %d: %w", n, super.Entries, err)
		}
		if err := each(e, size); err != nil {
			return fmt.Errorf("entry %d of %d: %w", n, super.Entries, err)
		}
		at += length
	}
	return nil
}

// readEntry reads the entry at a place and says how long it is in the log.
func readEntry(log io.ReaderAt, at, size int64) (e logEntry, length int64, err error) {
	sector := make([]byte, size)
	if _, err := log.ReadAt(sector, at); err != nil {
		return e, 0, err
	}
	var head struct{ Sector, Sectors, Flags, DataLength uint64 }
	if err := binary.Read(bytes.NewReader(sector), binary.LittleEndian, &head); err != nil {
		return e, 0, err
	}
	e = logEntry{Sector: head.Sector, Sectors: head.Sectors, Flags: head.Flags}
	if e.Flags&flagMark != 0 {
		const after = 32 // the header's length
		if head.DataLength > uint64(size-after) {
			return e, 0, errors.New("a mark is longer than its sector")
		}
		e.Mark = strings.TrimRight(string(sector[after:after+int64(head.DataLength)]), "\x00\n")
		return e, size, nil
	}
	if e.Flags&flagDiscard != 0 || e.Sectors == 0 {
		return e, size, nil
	}
	if e.Sectors > 1<<20 {
		return e, 0, fmt.Errorf("it has %d sectors", e.Sectors)
	}
	e.Data = make([]byte, int64(e.Sectors)*size)
	_, err = log.ReadAt(e.Data, at+size)
	return e, size + int64(len(e.Data)), err
}

// apply writes an entry to a disk. A discarded range reads as zeros, which is the worst it may be.
func (e logEntry) apply(disk io.WriterAt, size int64) error {
	data := e.Data
	if e.Flags&flagDiscard != 0 {
		data = make([]byte, int64(e.Sectors)*size)
	}
	if len(data) == 0 {
		return nil
	}
	_, err := disk.WriteAt(data, int64(e.Sector)*size)
	return err
}
